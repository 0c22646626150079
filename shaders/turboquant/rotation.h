// The rotation of a row, P = T diag(signs): T = H / sqrt(dim), with H the Kronecker product of a Hadamard
// matrix of order 1, 12 or 20 and one whose order is a power of two.
#pragma once

#include <metal_stdlib>
using namespace metal;

#include "codec.h"

// Order of the matrix that is not a power of two; 1 where dim is one.
inline uint odd_order(uint dim) { return (dim & (dim - 1)) == 0 ? 1 : dim % 12 == 0 ? 12 : 20; }

constexpr constant uint kMostOdd = 384;  // the largest dim whose odd order is not 1

// The signs in line i of the matrix of order 12 or 20.
inline uint hadamard_signs(uint order, uint i) { return order == 12 ? kHadamard12[i] : kHadamard20[i]; }

// row = H row, or its transpose times row, without the factor 1 / sqrt(dim). The simdgroup's lanes work
// together: a barrier must separate this from earlier writes to row, and from later reads of the results.
inline void hadamard_row(threadgroup float* row, uint dim, bool transposed, uint lane) {
  const uint order = odd_order(dim);
  const uint span = dim / order;
  for (uint half_span = 1; half_span < span; half_span *= 2) {
    for (uint i = lane; i < dim / 2; i += 32) {
      const uint low = i / half_span * half_span * 2 + i % half_span;
      const float a = row[low];
      const float b = row[low + half_span];
      row[low] = a + b;
      row[low + half_span] = a - b;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (order == 1) return;

  // span divides 32, so all values of a lane lie in the same column of the row as [order, span].
  const uint column = lane % span;
  float sums[kMostOdd / 32];
  uint lines[kMostOdd / 32];
#pragma unroll
  for (uint n = 0; n < kMostOdd / 32; ++n) {
    const uint line = min((n * 32 + lane) / span, order - 1);
    sums[n] = 0.0f;
    lines[n] = transposed ? line : hadamard_signs(order, line);
  }
  for (uint j = 0; j < order; ++j) {
    const float x = row[j * span + column];
    const uint signs = hadamard_signs(order, j);
#pragma unroll
    for (uint n = 0; n < kMostOdd / 32; ++n)
      sums[n] += (transposed ? signs >> lines[n] : lines[n] >> j) & 1 ? -x : x;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
  for (uint n = 0; n < kMostOdd / 32; ++n) {
    if (n * 32 + lane < dim) row[n * 32 + lane] = sums[n];
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
