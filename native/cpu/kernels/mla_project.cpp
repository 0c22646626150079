// Folded projections of latent attention: shaders/mla states what each kernel computes.
#include "cpu/kernels/families.h"
#include "cpu/kernels/quantized.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kColumns = 128;       // of an item
constexpr double kDequantizeTime = 0.3;  // nanoseconds of a value
constexpr double kProductTime = 0.06;    // nanoseconds of one product

// The value arguments of a projection, from [[buffer(first)]] on.
struct Sizes {
  uint32_t tokens, heads, in, out, stride, first;

  uint64_t row(uint64_t head) const { return head * stride + first; }
};

Sizes sizes_of(const FastLaunch& launch, uint32_t first) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(first + i); };
  return {value(0), value(1), value(2), value(3), value(4), value(5)};
}

constexpr uint32_t kDenseSizes = 3;

// Where the value arguments of a quantised projection begin: small floats have no biases.
uint32_t quantized_sizes(const FastLaunch& launch) { return launch.format.group > 0 ? 4 : 5; }

Sizes quantized_sizes_of(const FastLaunch& launch) { return sizes_of(launch, quantized_sizes(launch)); }

uint32_t group_size_of(const FastLaunch& launch) {
  return launch.format.group > 0 ? launch.format.group : launch.value<uint32_t>(quantized_sizes(launch) + 6);
}

float* result_of(const FastLaunch& launch) { return launch.buffer<float>(quantized_sizes(launch) - 1); }

// The matrix of a head: `rows` rows of `columns` values.
Matrix head_matrix(const FastLaunch& launch, uint64_t head, uint32_t rows, uint32_t columns) {
  const Format& format = launch.format;
  const uint32_t group_size = group_size_of(launch);
  const uint64_t start = quantized_sizes_of(launch).row(head);
  const uint8_t* packed = launch.buffer<uint8_t>(1) + start * (columns / kUnit) * format.bits * 4;
  const uint64_t groups = start * (columns / group_size);
  if (format.group > 0)
    return {packed,    launch.buffer<uint8_t>(2) + groups, nullptr, format, code_unit(format), rows, columns,
            group_size};
  const uint64_t bytes = groups * (format.type == DType::f32 ? 4 : 2);
  return {packed,
          launch.buffer<uint8_t>(2) + bytes,
          launch.buffer<uint8_t>(3) + bytes,
          format,
          1.0f,
          rows,
          columns,
          group_size};
}

// Head `i` of all tokens.
Product head_product(const FastLaunch& launch, uint64_t i) {
  const Sizes s = quantized_sizes_of(launch);
  const Matrix w = head_matrix(launch, i % s.heads, s.out, s.in);
  return {w, w, false, true, i, 1, result_of(launch) + i * s.out};
}

// Columns [begin, end) of W^T x for one head of every token.
template <typename Q>
void add_rows(const Matrix& w, const Sizes& s, const float* x, uint32_t begin, uint32_t end, float* y) {
  for (uint32_t t = 0; t < s.tokens; ++t) clear_row(y + uint64_t(t) * s.heads * s.out + begin, end - begin);
  for (uint32_t r = 0; r < s.in; ++r)
    for (uint32_t at = begin; at < end; at += kUnit) {
      float values[kUnit];
      dequantize_unit<Q>(w, r, at, values);
      for (uint32_t t = 0; t < s.tokens; ++t) {
        const F32 factor = splat(x[uint64_t(t) * s.heads * s.in + r]);
        float* sums = y + uint64_t(t) * s.heads * s.out + at;
        for (uint32_t i = 0; i < kUnit; i += kLanes)
          store_floats(sums + i, fused(load_floats(values + i), factor, load_floats(sums + i)));
      }
    }
}

using AddRows = void (*)(const Matrix&, const Sizes&, const float*, uint32_t, uint32_t, float*);

AddRows add_rows_of(const FastLaunch& launch) {
  return by_codes(launch.format, [](auto codes) -> AddRows { return add_rows<decltype(codes)>; });
}

template <typename W>
void run_dense(const FastLaunch& launch) {
  const Sizes s = sizes_of(launch, kDenseSizes);
  const double each = double(s.in) * s.out * kProductTime;
  launch.batch.add(uint64_t(s.tokens) * s.heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const float* x = launch.buffer<float>(0) + item * s.in;
      const W* w = launch.buffer<W>(1) + s.row(item % s.heads) * s.in;
      for (uint32_t r = 0; r < s.out; ++r, w += s.in) {
        F32 sums = {};
        for_vectors(s.in, [&](uint32_t i, uint32_t count) {
          sums = fused(load_some(w + i, count), load_some(x + i, count), sums);
        });
        launch.buffer<float>(2)[item * s.out + r] = sum(sums);
      }
    }
  });
}

template <typename W>
void run_dense_transposed(const FastLaunch& launch) {
  const Sizes s = sizes_of(launch, kDenseSizes);
  const double each = double(s.in) * s.out * kProductTime;
  launch.batch.add(uint64_t(s.tokens) * s.heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const float* x = launch.buffer<float>(0) + item * s.in;
      const W* w = launch.buffer<W>(1) + s.row(item % s.heads) * s.out;
      float* y = launch.buffer<float>(2) + item * s.out;
      clear_row(y, s.out);
      for (uint32_t r = 0; r < s.in; ++r, w += s.out)
        for_vectors(s.out, [&](uint32_t i, uint32_t count) {
          store_some(y + i, fused(load_some(w + i, count), splat(x[r]), load_some(y + i, count)), count);
        });
    }
  });
}

}  // namespace

void mla_project(const FastLaunch& launch) {
  const Sizes s = quantized_sizes_of(launch);
  const uint64_t rows = uint64_t(s.tokens) * s.heads;
  run_rows(launch, {rows, s.out, head_product},
           row_activations(launch, launch.buffer<float>(0), rows, s.in, group_size_of(launch)));
}

void mla_project_transposed(const FastLaunch& launch) {
  const Sizes s = quantized_sizes_of(launch);
  const uint32_t parts = (s.out + kColumns - 1) / kColumns;
  const AddRows add = add_rows_of(launch);
  const double each = s.in * double(kColumns) * (kDequantizeTime + s.tokens * kProductTime);
  launch.batch.add(uint64_t(s.heads) * parts, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint64_t head = item / parts;
      const uint32_t first = uint32_t(item % parts) * kColumns;
      add(head_matrix(launch, head, s.in, s.out), s, launch.buffer<float>(0) + head * s.in, first,
          least(first + kColumns, s.out), result_of(launch) + head * s.out);
    }
  });
}

void mla_dense_project(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_dense, launch); }
void mla_dense_project_transposed(const FastLaunch& launch) {
  PYTURBO_BY_TYPE(launch.format.type, run_dense_transposed, launch);
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
