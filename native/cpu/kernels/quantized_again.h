// Results that left the range of f32 on the way are computed again, in double. The loops over integers do it
// where a weight's scale is nearly the largest or the smallest float there is: a bias of offset * scale may
// overflow, the product of the scales of weight and activations may be subnormal.
#pragma once

#include "cpu/kernels/quantized_matrix.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// A result below this may have lost digits; from there on, what its terms lost is below its rounding.
constexpr float kLeastResult = 0x1p-90f;

// Whether a result may have left the range: it is not finite, or tiny.
PYTURBO_INLINE I32 doubtful(F32 results) {
  int32_t least_bits;
  std::memcpy(&least_bits, &kLeastResult, sizeof least_bits);
  const I32 bits = magnitude(results);
  return (bits < least_bits) | (bits >= 0x7f800000);
}

// Activations of a row as integers, in planes of bytes.
struct IntegerRow {
  const Activations of;
  uint32_t planes;
  ByteOrder order;

  int32_t at(uint32_t column) const {
    const uint32_t block = order.block();
    const int8_t* from = of.planes + uint64_t(column / block) * planes * block + order.place(column % block);
    int32_t integer = 0;
    for (uint32_t p = 0; p < planes; ++p) integer = integer * 256 + from[p * block];
    return integer;
  }

  bool finite(uint32_t groups) const {
    for (uint32_t g = 0; g < groups; ++g)
      if (!(of.scales[g] < __builtin_inff())) return false;
    return true;
  }

  bool zero(uint32_t groups) const {
    for (uint32_t g = 0; g < groups; ++g)
      if (of.scales[g] != 0) return false;
    return true;
  }
};

// Whether a product of scales of row `row` and x is subnormal, though both are not zero.
static inline bool has_subnormal(const Matrix& w, uint32_t row, const ReadValues& format, const float* x) {
  for (uint32_t begin = 0; begin < w.in; begin += format.count) {
    Values v;
    format.read(w, row, begin, /*all=*/false, v);
    for (uint32_t g = 0; g <= (format.count - 1) >> w.group_shift; ++g) {
      const float own = x[(begin >> w.group_shift) + g];
      if (own != 0 && v.scales[g] != 0 && __builtin_fabsf(v.scales[g] * own) < __FLT_MIN__) return true;
    }
  }
  return false;
}

// Row `row` of w times x.
static inline double product_of(const Matrix& w, uint32_t row, const ReadValues& format,
                                const IntegerRow& x) {
  double sum = 0;
  for (uint32_t begin = 0; begin < w.in; begin += format.count) {
    Values v;
    format.read(w, row, begin, /*all=*/true, v);
    for (uint32_t i = 0; i < format.count; ++i) {
      const uint32_t own = i >> w.group_shift, group = (begin >> w.group_shift) + own;
      const double scaled = double(v.numbers[i]) * v.scales[own] + v.biases[own];
      sum += scaled * (double(x.at(begin + i)) * x.of.scales[group]);
    }
  }
  return sum;
}

// Computes those of y[r], row first + r of w times x, again that may have left the range of f32.
[[gnu::noinline, gnu::cold]] static void compute_again(const Matrix& w, uint32_t first, uint32_t rows,
                                                       const ReadValues& format, const IntegerRow& x,
                                                       float* y) {
  if (!x.finite(w.groups)) return;
  const bool zero = x.zero(w.groups);
  for (uint32_t r = 0; r < rows; ++r) {
    const float size = __builtin_fabsf(y[r]);
    if (size < kLeastResult ? zero || !has_subnormal(w, first + r, format, x.of.scales)
                            : size < __builtin_inff())
      continue;
    y[r] = float(product_of(w, first + r, format, x));
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
