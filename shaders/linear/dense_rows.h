// Rows of matrices that are not quantised times one vector, of any length.
#pragma once

#include "../common/row_teams.h"
#include "dense.h"

// Whether all rows are units that begin at multiples of 16 bytes, in matrices that are `stride` values apart.
inline bool has_units(uint in, ulong stride) { return in % kUnit == 0 && stride % kOctet == 0; }

// row . x of any length, in every lane of the simdgroup.
template <typename T>
inline float dot_row(device const T* row, device const float* x, uint in, uint lane) {
  float sum = 0;
  for (uint i = lane; i < in; i += 32) sum = fma(float(row[i]), x[i], sum);
  return simd_sum(sum);
}

// Row first + tid of the matrix times x, for the threads tid < kTeamRows of the threadgroup, all of which call this.
// A row past out repeats the last one. `partial` has room for kTeamPartials floats.
template <typename T>
inline float multiply_dense(
    device const T* weight,  // [out, in]
    device const float* x,   // [in]
    uint in,                 // 0: the product is zero, and nothing is read
    bool wide,               // as has_units says
    uint first,
    uint out,
    uint tid,
    threadgroup float* partial) {
  float sums[1] = {0};
  if (wide) {
    const Dense<T> w = {weight, in / kUnit};
    multiply_rows<1>(&w, x, spans_of(w), first, out, tid, kTeams, partial, sums);
    return sums[0];
  }
  for (uint r = tid / 32; r < kTeamRows; r += kRowSimdgroups) {
    const float sum = dot_row(weight + ulong(min(first + r, out - 1)) * in, x, in, tid % 32);
    if (tid % 32 == 0) partial[r] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return tid < kTeamRows ? partial[tid] : 0;
}
