// Dot products with a weight row that is not quantised.
#pragma once

#include <metal_stdlib>
using namespace metal;

// Dot products of one weight row with N tokens. Each token's additions happen in the same order for every N.
template <typename W, uint N>
inline void dot_row(
    device const W* row,    // [in]
    device const float* x,  // [N, in]
    device float* y,        // [N, out], only the first column
    uint in,
    uint out,
    uint lane) {
  float sums[N] = {};
  for (uint i = lane; i < in; i += 32) {
    const float w = float(row[i]);
    for (uint t = 0; t < N; ++t) sums[t] = fma(w, x[ulong(t) * in + i], sums[t]);
  }
  for (uint t = 0; t < N; ++t) {
    const float total = simd_sum(sums[t]);
    if (lane == 0) y[ulong(t) * out] = total;
  }
}
