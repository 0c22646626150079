// What products of rows and of tiles share.
#pragma once

#include "cpu/kernels/exponential.h"
#include "cpu/kernels/quantized.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kPrecisions = 2;

// Index of the batch's precision among the loops of a format: fast, default.
PYTURBO_INLINE uint32_t precision_of(const Batch& batch) {
  return batch.precision() == Precision::fast ? 0 : 1;
}

// y = silu(gate) * up.
static inline void gate(float* y, const float* gate, const float* up, uint32_t count) {
  uint32_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store_floats(y + i, silu(load_floats(gate + i)) * load_floats(up + i));
  if (i == count) return;
  alignas(64) float rest[2][kLanes] = {};
  std::memcpy(rest[0], gate + i, sizeof(float) * (count - i));
  std::memcpy(rest[1], up + i, sizeof(float) * (count - i));
  store_floats(rest[0], silu(load_floats(rest[0])) * load_floats(rest[1]));
  std::memcpy(y + i, rest[0], sizeof(float) * (count - i));
}

// Results of a product without a matrix.
static inline void fill_nan(const Product& p, uint32_t first, uint32_t rows) {
  for (uint32_t t = 0; t < p.tokens; ++t)
    for (uint32_t r = first; r < first + rows; ++r) p.y[uint64_t(t) * p.w.out + r] = __builtin_nanf("");
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
