// Products of one vector with up to four matrices in one launch, for the project kernels. The first threadgroups have the
// rows of matrix a, the next ones those of b, c and d.
#pragma once

#include "rows.h"

constant bool has_b [[function_constant(2)]];
constant bool has_c [[function_constant(3)]];
constant bool has_d [[function_constant(4)]];
constant bool adds_bias [[function_constant(5)]];

// Threadgroups for a matrix.
inline uint groups_of(uint out) { return (out + kRowsPerGroup - 1) / kRowsPerGroup; }

// A matrix, and the number of the threadgroup among those from its first one on.
template <typename W>
struct Joined {
  W w;
  device float* y;  // [out]
  uint out;
  uint group;
  uint before;  // rows of the matrices before this one
};

// Whether the threadgroup has rows of a matrix after this one.
template <typename W>
inline bool is_past(thread const Joined<W>& own) {
  return own.group >= groups_of(own.out);
}

// The matrix that follows.
template <typename W>
inline Joined<W> following(thread const Joined<W>& own, W w, device float* y, uint out) {
  return Joined<W>{w, y, out, own.group - groups_of(own.out), own.before + own.out};
}

// A product with the bias of its row; bias holds those of all matrices.
template <typename W>
inline float with_bias(thread const Joined<W>& own, uint row, float sum, device const float* bias) {
  return adds_bias ? sum + bias[own.before + row] : sum;
}
