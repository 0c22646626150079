// Rows of quantised matrices times one vector, for every matvec kernel.
// Loops over thread arrays are unrolled, so that the arrays are registers.
#pragma once

#include "units.h"

constexpr constant uint kRows = 4;                               // rows of a simdgroup
constexpr constant uint kRowSimdgroups = 2;                      // simdgroups of a threadgroup
constexpr constant uint kRowsPerGroup = kRows * kRowSimdgroups;  // rows of a threadgroup
constexpr constant uint kRowThreads = 32 * kRowSimdgroups;       // threads of a threadgroup

// Reads the 32 values of a unit of x; returns their sum.
inline float load_unit(device const float* x, thread float* values) {
  device const packed_float4* source = (device const packed_float4*)x;
  float total = 0;
#pragma unroll
  for (uint i = 0; i < kUnit / 4; ++i) {
    const float4 v = float4(source[i]);
    values[4 * i] = v.x;
    values[4 * i + 1] = v.y;
    values[4 * i + 2] = v.z;
    values[4 * i + 3] = v.w;
    total += (v.x + v.y) + (v.z + v.w);
  }
  return total;
}

// sums[m * kRows + r] = row first + r of w[m] times x, in every lane of the simdgroup. The `units` units of x
// are read once for all rows; a row past out repeats the last one.
template <uint count, typename W>
inline void multiply_rows(
    thread const W* w,
    device const float* x,
    uint units,
    uint first,
    uint out,
    uint lane,
    thread float* sums) {
#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) sums[i] = 0;
  for (uint unit = lane; unit < units; unit += 32) {
    float values[kUnit];
    const float total = load_unit(x + unit * kUnit, values);
#pragma unroll
    for (uint m = 0; m < count; ++m) {
#pragma unroll
      for (uint r = 0; r < kRows; ++r)
        sums[m * kRows + r] += dot_unit(w[m], min(first + r, out - 1), unit, values, total);
    }
  }
#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) sums[i] = simd_sum(sums[i]);
}
