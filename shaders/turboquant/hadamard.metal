// Rotation of the rows that the compressed cache holds, and back.
#include "rotation.h"

constant bool has_signs [[function_constant(0)]];
constant bool inverse [[function_constant(1)]];

constexpr constant uint kRows = 4;  // rows of one threadgroup, one per simdgroup

// y = T (signs * x), or its inverse y = signs * (T^t x); T = H / sqrt(dim), H Sylvester's Hadamard matrix for
// powers of two, else the Kronecker product of one of order 12 or 20 with Sylvester's.
// Layout: rows contiguous; y may be x.
// Dispatch: groups (ceil_div(rows, kRows)), threads (32 * kRows)
// Requires: rows > 0; dim > 0;
//   512 % dim == 0 || (dim % 12 == 0 && 384 % dim == 0) || (dim % 20 == 0 && 320 % dim == 0)
// Numerics: f32 sums, rounded once to the type of y; NaN and inf reach their whole row.
template <typename T>
kernel void hadamard(
    device const T* x [[buffer(0)]],                                        // [rows, dim]
    device const float* signs [[buffer(1), function_constant(has_signs)]],  // [dim]
    device T* y [[buffer(2)]],                                              // [rows, dim]
    constant uint& rows [[buffer(3)]],
    constant uint& dim [[buffer(4)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[kRows * kMaxDim];
  const uint index = tg * kRows + simd;
  if (index >= rows) return;
  threadgroup float* row = memory + simd * kMaxDim;
  x += ulong(index) * dim;
  y += ulong(index) * dim;
  for (uint i = lane; i < dim; i += 32) row[i] = has_signs && !inverse ? float(x[i]) * signs[i] : float(x[i]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  hadamard_row(row, dim, inverse, lane);
  const float factor = 1.0f / sqrt(float(dim));
  for (uint i = lane; i < dim; i += 32)
    y[i] = T(row[i] * (has_signs && inverse ? factor * signs[i] : factor));
}

template [[host_name("hadamard_f32")]] kernel decltype(hadamard<float>) hadamard<float>;
template [[host_name("hadamard_f16")]] kernel decltype(hadamard<half>) hadamard<half>;
template [[host_name("hadamard_bf16")]] kernel decltype(hadamard<bfloat>) hadamard<bfloat>;
