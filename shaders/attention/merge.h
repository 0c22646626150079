// Merging the blocks that the keys of a query were split into: the simdgroups of a threadgroup share the blocks of a row.
#pragma once

#include "attention.h"

constexpr constant uint kMergeSimdgroups = 8;  // of a threadgroup

// The largest score of a row of blocks, and the sum of weights relative to it.
struct RowTotal {
  float top;
  float total;
};

// Blocks with l = 0 have no keys.
inline RowTotal row_total(device const float* m, device const float* l, uint blocks, uint lane) {
  float top = -INFINITY;
  for (uint b = lane; b < blocks; b += 32) {
    if (l[b] != 0.0f) top = max(top, m[b]);
  }
  top = simd_max(top);
  float total = 0.0f;
  for (uint b = lane; b < blocks; b += 32) {
    if (l[b] != 0.0f) total = fma(softmax_weight(m[b], top), l[b], total);
  }
  return RowTotal{top, simd_sum(total)};
}

// sums[i] = sum of e^(m_b - top) * o[b, column + 32 * i] over the blocks of this simdgroup, for columns before dim.
template <uint count>
inline void sum_blocks(
    device const float* o,
    device const float* m,
    device const float* l,
    float top,
    uint blocks,
    uint dim,
    uint column,
    uint simd,
    uint lane,
    thread float* sums) {
#pragma unroll
  for (uint i = 0; i < count; ++i) sums[i] = 0.0f;
  for (uint first = simd; first < blocks; first += kMergeSimdgroups * 32) {
    // Each lane has the weight of a block; a negative one is that of a block without keys.
    const uint own = min(first + lane * kMergeSimdgroups, blocks - 1);
    const float weight = l[own] != 0.0f ? softmax_weight(m[own], top) : -1.0f;
    const uint end = min(32u, (blocks - first + kMergeSimdgroups - 1) / kMergeSimdgroups);
    for (uint b = 0; b < end; ++b) {
      const float factor = simd_shuffle(weight, ushort(b));
      if (factor < 0.0f) continue;
      device const float* row = o + ulong(first + b * kMergeSimdgroups) * dim + column;
#pragma unroll
      for (uint i = 0; i < count; ++i) {
        if (column + 32 * i < dim) sums[i] = fma(factor, row[32 * i], sums[i]);
      }
    }
  }
}
