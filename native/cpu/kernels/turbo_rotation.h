// The rotation of one row of floats: shaders/turboquant/rotation.h in the host's words.
#pragma once

#include "cpu/kernels/turbo_codes.h"

namespace pyturbo::cpu::PYTURBO_ISA {

// row = H row for H of a power of two, stage by stage.
static inline void sylvester(float* row, uint32_t span) {
  for (uint32_t half = 1; half < span && span < kLanes; half *= 2)
    for (uint32_t i = 0; i < span / 2; ++i) {
      const uint32_t low = i / half * half * 2 + i % half;
      const float a = row[low], b = row[low + half];
      row[low] = a + b;
      row[low + half] = a - b;
    }
  if (span < kLanes) return;
  for (uint32_t begin = 0; begin < span; begin += kLanes) {
    F32 v = load_floats(row + begin);
#pragma GCC unroll 4
    for (uint32_t half = 1; half < kLanes; half *= 2) {
      I32 partner;
      F32 sign;
      for (uint32_t l = 0; l < kLanes; ++l) {
        partner[l] = int32_t(l ^ half);
        sign[l] = l & half ? -1.0f : 1.0f;
      }
      v = fused(v, sign, permute(v, partner));
    }
    store_floats(row + begin, v);
  }
  for (uint32_t half = kLanes; half < span; half *= 2)
    for (uint32_t begin = 0; begin < span; begin += 2 * half)
      for (uint32_t i = begin; i < begin + half; i += kLanes) {
        const F32 a = load_floats(row + i), b = load_floats(row + i + half);
        store_floats(row + i, a + b);
        store_floats(row + i + half, a - b);
      }
}

// row = H row, or its transpose times row, without the factor 1 / sqrt(dim). dim <= kMaxDim.
static inline void hadamard_row(float* row, uint32_t dim, bool transposed) {
  const uint32_t order = (dim & (dim - 1)) == 0 ? 1 : dim % 12 == 0 ? 12 : 20;
  const uint32_t span = dim / order;
  for (uint32_t i = 0; i < order; ++i) sylvester(row + i * span, span);
  if (order == 1) return;
  const uint* lines = order == 12 ? kHadamard12 : kHadamard20;
  float sums[kMaxDim] = {};
  for (uint32_t i = 0; i < order; ++i)
    for (uint32_t j = 0; j < order; ++j) {
      const bool negative = (transposed ? lines[j] >> i : lines[i] >> j) & 1;
      const float sign = negative ? -1.0f : 1.0f;
      for (uint32_t c = 0; c < span; ++c) sums[i * span + c] += sign * row[j * span + c];
    }
  std::memcpy(row, sums, dim * sizeof(float));
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
