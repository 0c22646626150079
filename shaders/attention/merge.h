// Merging the blocks that the keys of a query were split into: the simdgroups of a threadgroup share the blocks of a row.
#pragma once

#include "attention.h"

constexpr constant uint kMergeSimdgroups = 8;  // of a threadgroup

// The largest score of a row of blocks, and the sum of weights relative to it; blocks from `used` on have no keys.
struct RowTotal {
  float top;
  float total;
  uint used;
};

// Blocks with l = 0 have no keys.
inline RowTotal row_total(device const float* m, device const float* l, uint blocks, uint lane) {
  float top = -INFINITY;
  uint used = 0;
#pragma unroll 4
  for (uint b = lane; b < blocks; b += 32) {
    const float own = m[b];
    const bool has_keys = l[b] != 0.0f;
    top = has_keys ? max(top, own) : top;
    used = has_keys ? b + 1 : used;
  }
  top = simd_max(top);
  used = simd_max(used);
  float total = 0.0f;
  for (uint b = lane; b < used; b += 32) {
    if (l[b] != 0.0f) total = fma(softmax_weight(m[b], top), l[b], total);
  }
  return RowTotal{top, simd_sum(total), used};
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
  constexpr uint kAhead = count > 4 ? 4 : 8;  // blocks that are asked for before the first of them is used
#pragma unroll
  for (uint i = 0; i < count; ++i) sums[i] = 0.0f;
  for (uint first = simd; first < blocks; first += kMergeSimdgroups * 32) {
    // Each lane has the weight of a block; a negative one is that of a block without keys.
    const uint own = min(first + lane * kMergeSimdgroups, blocks - 1);
    const float weight = l[own] != 0.0f ? softmax_weight(m[own], top) : -1.0f;
    const uint end = min(32u, (blocks - first + kMergeSimdgroups - 1) / kMergeSimdgroups);
    for (uint b = 0; b < end; b += kAhead) {
      float values[kAhead][count];
#pragma unroll
      for (uint a = 0; a < kAhead; ++a) {
        const uint block = first + min(b + a, end - 1) * kMergeSimdgroups;
        device const float* row = o + ulong(block) * dim + column;
#pragma unroll
        for (uint i = 0; i < count; ++i) values[a][i] = column + 32 * i < dim ? row[32 * i] : 0.0f;
      }
#pragma unroll
      for (uint a = 0; a < kAhead; ++a) {
        const float factor = simd_shuffle(weight, ushort(min(b + a, end - 1)));
        const bool adds = b + a < end && !(factor < 0.0f);
#pragma unroll
        for (uint i = 0; i < count; ++i) sums[i] = adds ? fma(factor, values[a][i], sums[i]) : sums[i];
      }
    }
  }
}
