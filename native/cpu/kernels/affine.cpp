// The affine kernels: shaders/affine states what each computes.
#include "cpu/kernels/affine.h"

#include "cpu/kernels/families.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

Matrix matrix(const FastLaunch& launch, uint32_t first, uint32_t out, uint32_t in, uint32_t group_size) {
  return {launch.buffer<uint8_t>(first),
          launch.buffer<void>(first + 1),
          launch.buffer<void>(first + 2),
          launch.format.type,
          launch.format.bits,
          out,
          in,
          group_size};
}

// Where the value arguments of matvec and matmul begin, and of their gated forms.
constexpr uint32_t kPlainSizes = 5, kGatedSizes = 8;

struct Sizes {
  uint32_t tokens, in, out, group_size;
};

Sizes sizes_of(const FastLaunch& launch, uint32_t first) {
  return {launch.value<uint32_t>(first), launch.value<uint32_t>(first + 1), launch.value<uint32_t>(first + 2),
          launch.value<uint32_t>(first + 3)};
}

Product plain_product(const FastLaunch& launch, uint64_t) {
  const Sizes s = sizes_of(launch, kPlainSizes);
  const Matrix w = matrix(launch, 1, s.out, s.in, s.group_size);
  return {w, w, false, true, 0, s.tokens, launch.buffer<float>(4)};
}

Product gated_product(const FastLaunch& launch, uint64_t) {
  const Sizes s = sizes_of(launch, kGatedSizes);
  return {matrix(launch, 1, s.out, s.in, s.group_size),
          matrix(launch, 4, s.out, s.in, s.group_size),
          true,
          true,
          0,
          s.tokens,
          launch.buffer<float>(7)};
}

// One product for all tokens.
void run_product(const FastLaunch& launch, Product (*at)(const FastLaunch&, uint64_t), uint32_t first_size,
                 bool tiled) {
  const Sizes s = sizes_of(launch, first_size);
  const float* x = launch.buffer<float>(0);
  const Products products = {1, s.out, at};
  if (tiled)
    run_tiles(launch, products, tile_activations(launch, x, s.tokens, s.in, s.group_size), s.tokens);
  else
    run_rows(launch, products, row_activations(launch, x, s.tokens, s.in, s.group_size));
}

// The value arguments of the expert kernels, from [[buffer(first)]] on.
struct ExpertSizes {
  uint32_t tokens, k, x_rows, in, out, group_size, experts;
  uint64_t strides[3];
};

ExpertSizes expert_sizes_of(const FastLaunch& launch, uint32_t first) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(first + i); };
  const auto stride = [&](uint32_t i) { return launch.value<uint64_t>(first + i); };
  return {value(0), value(1), value(2), value(3),
          value(4), value(5), value(6), {stride(7), stride(8), stride(9)}};
}

// Expert `id` of the stack bound from [[buffer(first)]] on, moved on by `offset` bytes.
Matrix expert_matrix(const FastLaunch& launch, uint32_t first, const ExpertSizes& s, uint64_t id,
                     uint64_t offset) {
  const uint64_t scale_bytes = launch.format.type == DType::f32 ? 4 : 2;
  const uint64_t bytes[3] = {4, scale_bytes, scale_bytes};
  const uint8_t* bases[3];
  for (uint32_t i = 0; i < 3; ++i)
    bases[i] = launch.buffer<uint8_t>(first + i) + id * s.strides[i] * bytes[i] + offset;
  return {bases[0], bases[1], bases[2], launch.format.type, launch.format.bits, s.out, s.in, s.group_size};
}

constexpr uint32_t kExpertSizes = 7, kGatedExpertSizes = 10;

// Choice `i` of all tokens. The weights start at buffer 2; `offsets`, y and the sizes follow them.
template <bool gated>
Product expert_product(const FastLaunch& launch, uint64_t i) {
  constexpr uint32_t kOffsets = gated ? 8 : 5;
  const ExpertSizes s = expert_sizes_of(launch, gated ? kGatedExpertSizes : kExpertSizes);
  const uint32_t id = uint32_t(launch.buffer<int32_t>(1)[i]);  // a negative id is a large one
  const bool known = id < s.experts;
  const uint64_t offset = known && launch.constant(0) ? launch.buffer<uint64_t>(kOffsets)[i] : 0;
  const Matrix w = expert_matrix(launch, 2, s, known ? id : 0, offset);
  const Matrix up = gated ? expert_matrix(launch, 5, s, known ? id : 0, offset) : w;
  const uint64_t row = i / s.k * s.x_rows + i % s.k % s.x_rows;
  return {w, up, gated, known, row, 1, launch.buffer<float>(kOffsets + 1) + i * s.out};
}

template <bool gated>
void run_experts(const FastLaunch& launch) {
  const ExpertSizes s = expert_sizes_of(launch, gated ? kGatedExpertSizes : kExpertSizes);
  const uint64_t rows = uint64_t(s.tokens) * s.x_rows;
  const Activations x = row_activations(launch, launch.buffer<float>(0), rows, s.in, s.group_size);
  run_rows(launch, {uint64_t(s.tokens) * s.k, s.out, expert_product<gated>}, x);
}

// The value arguments of affine_grouped_matmul; its tokens are rows, and each has one expert.
ExpertSizes grouped_sizes_of(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const auto stride = [&](uint32_t i) { return launch.value<uint64_t>(i); };
  return {value(6), 1, 1, value(7), value(8), value(9), value(10), {stride(11), stride(12), stride(13)}};
}

Product bucket_product(const FastLaunch& launch, uint64_t e) {
  const ExpertSizes s = grouped_sizes_of(launch);
  const int32_t* offsets = launch.buffer<int32_t>(1);
  const uint32_t begin = least(uint32_t(offsets[e]), s.tokens);
  const uint32_t end = least(uint32_t(offsets[e + 1]), s.tokens);
  const Matrix w = expert_matrix(launch, 2, s, e, 0);
  float* y = launch.buffer<float>(5) + uint64_t(begin) * s.out;
  return {w, w, false, true, begin, begin < end ? end - begin : 0, y};
}

// Row `row` of a table, as floats.
template <uint32_t bits>
void dequantize_row(const Matrix& table, uint32_t row, float* y) {
  using O = Order<bits>;
  for (uint32_t begin = 0; begin < table.in; begin += O::kBlock) {
    U8 codes[O::kClasses];
    alignas(64) uint8_t bytes[O::kClasses][kBytes];
    unpack_block<bits>(table, row, uint64_t(begin) / 8 * bits, codes);
    for (uint32_t c = 0; c < O::kClasses; ++c) store_vector(bytes[c], codes[c]);
    const uint32_t values = least(O::kBlock, table.in - begin);
    constexpr uint32_t kUnit = O::kBlock < 32 ? O::kBlock : 32;  // values of one group
    for (uint32_t i = 0; i < values; i += kUnit) {
      const GroupVector v = load_groups(table, row, (begin + i) >> table.group_shift, kCodeOffset<bits>);
      const float scale = v.scales[0], bias = v.biases[0];
      for (uint32_t c = 0; c < O::kClasses; ++c) {
        for (uint32_t j = 0; j < kUnit / O::kClasses; ++j) {
          const uint32_t code = bytes[c][i / O::kClasses + j];
          const float signed_code = kCodeOffset<bits> != 0 ? float(int8_t(code)) : float(code);
          y[begin + i + j * O::kClasses + c] = __builtin_fmaf(signed_code, scale, bias);
        }
      }
    }
  }
}

using DequantizeRow = void (*)(const Matrix&, uint32_t, float*);

DequantizeRow dequantize_of(uint32_t bits) {
  switch (bits) {
    case 2:
      return dequantize_row<2>;
    case 3:
      return dequantize_row<3>;
    case 4:
      return dequantize_row<4>;
    case 5:
      return dequantize_row<5>;
    case 6:
      return dequantize_row<6>;
    default:
      return dequantize_row<8>;
  }
}

constexpr double kDequantizeTime = 0.5;  // nanoseconds of a value

}  // namespace

void affine_matvec(const FastLaunch& launch) {
  run_product(launch, plain_product, kPlainSizes, /*tiled=*/false);
}
void affine_matmul(const FastLaunch& launch) {
  run_product(launch, plain_product, kPlainSizes, /*tiled=*/true);
}
void affine_swiglu(const FastLaunch& launch) {
  run_product(launch, gated_product, kGatedSizes, /*tiled=*/false);
}
void affine_swiglu_matmul(const FastLaunch& launch) {
  run_product(launch, gated_product, kGatedSizes, /*tiled=*/true);
}
void affine_experts_matvec(const FastLaunch& launch) { run_experts<false>(launch); }
void affine_experts_swiglu(const FastLaunch& launch) { run_experts<true>(launch); }

void affine_grouped_matmul(const FastLaunch& launch) {
  const ExpertSizes s = grouped_sizes_of(launch);
  const Activations x = tile_activations(launch, launch.buffer<float>(0), s.tokens, s.in, s.group_size);
  run_tiles(launch, {s.experts, s.out, bucket_product}, x, s.tokens);
}

void affine_embed(const FastLaunch& launch) {
  const uint32_t tokens = launch.value<uint32_t>(5), vocab = launch.value<uint32_t>(6);
  const uint32_t hidden = launch.value<uint32_t>(7);
  const Matrix table = matrix(launch, 1, vocab, hidden, launch.value<uint32_t>(8));
  const int32_t* ids = launch.buffer<int32_t>(0);
  float* y = launch.buffer<float>(4);
  const DequantizeRow dequantize = dequantize_of(launch.format.bits);
  launch.batch.add(tokens, hidden * kDequantizeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const uint32_t id = uint32_t(ids[t]);  // a negative id is a large one
      if (id < vocab)
        dequantize(table, id, y + t * hidden);
      else
        for (uint32_t i = 0; i < hidden; ++i) y[t * hidden + i] = __builtin_nanf("");
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
