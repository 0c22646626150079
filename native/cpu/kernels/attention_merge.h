// Merges the blocks of one query.
#pragma once

#include "cpu/kernels/attention.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// One head of one token: o, m and l are its blocks'.
static inline void merge_row(const float* o, const float* m, const float* l, float sink, uint32_t blocks,
                             uint32_t dim, float* y) {
  auto* weights = static_cast<float*>(item_scratch(sizeof(float) * blocks));
  float top = kNoScore;
  for (uint32_t b = 0; b < blocks; ++b)
    if (l[b] != 0.0f) top = larger_number(top, m[b]);
  float total = 0;
  for (uint32_t b = 0; b < blocks; ++b) {
    if (l[b] == 0.0f) continue;
    weights[b] = softmax_weight(m[b], top);
    total = __builtin_fmaf(weights[b], l[b], total);
  }
  const float inverse = normalizer(top, total, sink);
  for_vectors(dim, [&](uint32_t i, uint32_t count) {
    F32 acc = {};
    for (uint32_t b = 0; b < blocks; ++b)
      if (l[b] != 0.0f) acc = fused(splat(weights[b]), load_some(o + uint64_t(b) * dim + i, count), acc);
    store_some(y + i, acc * inverse, count);
  });
}

// y *= sigmoid(gate).
static inline void gate_row(float* y, const float* gate, uint32_t dim) {
  for_vectors(dim, [&](uint32_t i, uint32_t count) {
    store_some(y + i, load_some(y + i, count) * sigmoid(load_some(gate + i, count)), count);
  });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
