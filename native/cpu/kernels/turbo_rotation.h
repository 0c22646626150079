// The rotation of one row of floats, which shaders/turboquant/rotation.h specifies.
#pragma once

#include "cpu/kernels/turbo_codes.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Butterflies between the lanes of a vector: lane l and its partner l ^ 2^stage become their sum and
// difference.
struct LaneStages {
  int32_t partners[4][kLanes];
  float signs[4][kLanes];
  constexpr LaneStages() : partners(), signs() {
    for (uint32_t stage = 0; stage < 4; ++stage)
      for (uint32_t l = 0; l < kLanes; ++l) {
        partners[stage][l] = int32_t(l ^ 1u << stage);
        signs[stage][l] = l >> stage & 1 ? -1.0f : 1.0f;
      }
  }
};
inline constexpr LaneStages kStages;

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
    for (uint32_t stage = 0; 1u << stage < kLanes; ++stage) {
      const F32 partner = permute(v, load_vector<I32>(kStages.partners[stage]));
      v = fused(v, load_floats(kStages.signs[stage]), partner);
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

// Adds or subtracts whole runs of `span` values: run i of the result is the sum of +-run j by a matrix of
// signs.
template <uint32_t span>
static void mix_runs(float* row, uint32_t order, const uint* lines, bool transposed) {
  typedef float Run __attribute__((vector_size(4 * span)));
  Run runs[kMaxDim / span];
  std::memcpy(runs, row, 4 * span * order);
  for (uint32_t i = 0; i < order; ++i) {
    Run sum = {};
    for (uint32_t j = 0; j < order; ++j) {
      const uint32_t negative = (transposed ? lines[j] >> i : lines[i] >> j) & 1;
      sum += runs[j] * (1.0f - 2.0f * float(negative));
    }
    std::memcpy(row + i * span, &sum, sizeof sum);
  }
}

// row = H row, or its transpose times row, without the factor 1 / sqrt(dim). dim <= kMaxDim.
static inline void hadamard_row(float* row, uint32_t dim, bool transposed) {
  const uint32_t order = (dim & (dim - 1)) == 0 ? 1 : dim % 12 == 0 ? 12 : 20;
  const uint32_t span = dim / order;
  for (uint32_t i = 0; i < order; ++i) sylvester(row + i * span, span);
  if (order == 1) return;
  const uint* lines = order == 12 ? kHadamard12 : kHadamard20;
  switch (span) {
    case 1:
      return mix_runs<1>(row, order, lines, transposed);
    case 2:
      return mix_runs<2>(row, order, lines, transposed);
    case 4:
      return mix_runs<4>(row, order, lines, transposed);
    case 8:
      return mix_runs<8>(row, order, lines, transposed);
    case 16:
      return mix_runs<16>(row, order, lines, transposed);
    default:
      return mix_runs<32>(row, order, lines, transposed);
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
