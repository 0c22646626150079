// The kernels of shaders/affine and shaders/fp, which state what each computes. They have the same arguments,
// but that those of small floats have a global scale, which may be missing, in place of the biases, and
// neither the group size nor a stride of biases.
#include "cpu/kernels/quantized.h"

#include "cpu/kernels/families.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr float kGlobalUnit = 448 * 6;  // shaders/fp/fp.h

// Reads value arguments one after another.
struct Values {
  const FastLaunch& launch;
  uint32_t next;  // [[buffer]]

  template <typename T>
  T take() {
    return launch.value<T>(next++);
  }
  uint32_t size() { return take<uint32_t>(); }
  uint32_t group_size() { return launch.format.group > 0 ? launch.format.group : size(); }
};

struct Sizes {
  uint32_t tokens, in, out, group_size;
};

Sizes sizes_of(const FastLaunch& launch, uint32_t first) {
  Values values{launch, first};
  Sizes s;
  s.tokens = values.size();
  s.in = values.size();
  s.out = values.size();
  s.group_size = values.group_size();
  return s;
}

// Elements from one matrix of a stack to the next.
struct Strides {
  uint64_t packed, scales, biases;
};

// Matrix `id` of the stack bound from [[buffer(first)]] on, moved on by `offset` bytes.
Matrix matrix(const FastLaunch& launch, uint32_t first, uint32_t out, uint32_t in, uint32_t group_size,
              uint64_t id = 0, Strides strides = {}, uint64_t offset = 0) {
  const Format& format = launch.format;
  const uint8_t* packed = launch.buffer<uint8_t>(first) + id * strides.packed * 4 + offset;
  const uint8_t* scales = launch.buffer<uint8_t>(first + 1) + offset;
  if (format.group == 0) {
    const uint64_t bytes = format.type == DType::f32 ? 4 : 2;
    const uint8_t* biases = launch.buffer<uint8_t>(first + 2) + id * strides.biases * bytes + offset;
    return {packed, scales + id * strides.scales * bytes, biases, format, 1.0f, out, in, group_size};
  }
  const float global = launch.constant(1) ? launch.buffer<float>(first + 2)[id] / kGlobalUnit : 1.0f;
  return {packed,    scales + id * strides.scales, nullptr, format, code_unit(format) * global, out, in,
          group_size};
}

// Where the value arguments of matvec and matmul begin, and of their gated forms.
constexpr uint32_t kPlainSizes = 5, kGatedSizes = 8;

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
  Strides strides;
};

Strides strides_of(Values& values) {
  Strides strides = {values.take<uint64_t>(), values.take<uint64_t>(), 0};
  if (values.launch.format.group == 0) strides.biases = values.take<uint64_t>();
  return strides;
}

ExpertSizes expert_sizes_of(const FastLaunch& launch, uint32_t first) {
  Values values{launch, first};
  ExpertSizes s;
  s.tokens = values.size();
  s.k = values.size();
  s.x_rows = values.size();
  s.in = values.size();
  s.out = values.size();
  s.group_size = values.group_size();
  s.experts = values.size();
  s.strides = strides_of(values);
  return s;
}

// Expert `id` of the stack bound from [[buffer(first)]] on, moved on by `offset` bytes.
Matrix expert_matrix(const FastLaunch& launch, uint32_t first, const ExpertSizes& s, uint64_t id,
                     uint64_t offset) {
  return matrix(launch, first, s.out, s.in, s.group_size, id, s.strides, offset);
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

// The value arguments of the grouped product; its tokens are rows, and each has one expert.
ExpertSizes grouped_sizes_of(const FastLaunch& launch) {
  Values values{launch, 6};
  ExpertSizes s;
  s.tokens = values.size();
  s.k = s.x_rows = 1;
  s.in = values.size();
  s.out = values.size();
  s.group_size = values.group_size();
  s.experts = values.size();
  s.strides = strides_of(values);
  return s;
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
template <typename Q>
void dequantize_row(const Matrix& table, uint32_t row, float* y) {
  for (uint32_t begin = 0; begin < table.in; begin += kUnit) dequantize_unit<Q>(table, row, begin, y + begin);
}

using DequantizeRow = void (*)(const Matrix&, uint32_t, float*);

constexpr double kDequantizeTime = 0.5;  // nanoseconds of a value

}  // namespace

void quantized_matvec(const FastLaunch& launch) {
  run_product(launch, plain_product, kPlainSizes, /*tiled=*/false);
}
void quantized_matmul(const FastLaunch& launch) {
  run_product(launch, plain_product, kPlainSizes, /*tiled=*/true);
}
void quantized_swiglu(const FastLaunch& launch) {
  run_product(launch, gated_product, kGatedSizes, /*tiled=*/false);
}
void quantized_swiglu_matmul(const FastLaunch& launch) {
  run_product(launch, gated_product, kGatedSizes, /*tiled=*/true);
}
void quantized_experts_matvec(const FastLaunch& launch) { run_experts<false>(launch); }
void quantized_experts_swiglu(const FastLaunch& launch) { run_experts<true>(launch); }

void quantized_grouped_matmul(const FastLaunch& launch) {
  const ExpertSizes s = grouped_sizes_of(launch);
  const Activations x = tile_activations(launch, launch.buffer<float>(0), s.tokens, s.in, s.group_size);
  run_tiles(launch, {s.experts, s.out, bucket_product}, x, s.tokens);
}

void quantized_embed(const FastLaunch& launch) {
  Values values{launch, kPlainSizes};
  const uint32_t tokens = values.size(), vocab = values.size(), hidden = values.size();
  const Matrix table = matrix(launch, 1, vocab, hidden, values.group_size());
  const int32_t* ids = launch.buffer<int32_t>(0);
  float* y = launch.buffer<float>(4);
  const DequantizeRow dequantize =
      by_codes(launch.format, [](auto codes) -> DequantizeRow { return dequantize_row<decltype(codes)>; });
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
