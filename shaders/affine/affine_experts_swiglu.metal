#include "../common/activations.h"
#include "../common/rows.h"
#include "experts.h"

// y[t, j] = silu(G[e] x[t]) * (U[e] x[t]), e = ids[t, j], for the k experts of each token.
// Layout: as affine_experts_matvec; gate and up have equal strides and slots.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), k, tokens), threads (kRowThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0;
//   x_rows == 1 || x_rows == k; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts;
//   bits % 4 > 0 || packed_stride % 4 == 0
// Work: products (2 * tokens * k * in * out),
//   bytes (2 * min(tokens * k, matrices) * in * out * (bits + 1) / 8)
// Numerics: as affine_swiglu. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <uint bits, typename S>
kernel void affine_experts_swiglu(
    device const float* x [[buffer(0)]],  // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],  // [tokens, k]
    device const uint* gate_packed
    [[buffer(2)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const S* gate_scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group_size]
    device const S* gate_biases [[buffer(4)]],  // [(matrices - 1) * biases_stride + out * in / group_size]
    device const uint* up_packed
    [[buffer(5)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const S* up_scales [[buffer(6)]],  // [(matrices - 1) * scales_stride + out * in / group_size]
    device const S* up_biases [[buffer(7)]],  // [(matrices - 1) * biases_stride + out * in / group_size]
    device const int* slots [[buffer(8), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(9)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(10)]],
    constant uint& k [[buffer(11)]],
    constant uint& x_rows [[buffer(12)]],
    constant uint& in [[buffer(13)]],
    constant uint& out [[buffer(14)]],
    constant uint& group_size [[buffer(15)]],
    constant uint& experts [[buffer(16)]],
    constant uint& matrices [[buffer(17)]],
    constant ulong& packed_stride [[buffer(18)]],
    constant ulong& scales_stride [[buffer(19)]],
    constant ulong& biases_stride [[buffer(20)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[2 * kRowPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const Strides strides = {packed_stride, scales_stride, biases_stride};
  const Affine<bits, S> w[2] = {
      matrix_at<bits, S>(gate_packed, gate_scales, gate_biases, matrix, strides, in, group_size),
      matrix_at<bits, S>(up_packed, up_scales, up_biases, matrix, strides, in, group_size)};

  const ulong row = ulong(tg.z) * x_rows + tg.y % x_rows;
  const uint first = tg.x * kRowsPerGroup;
  float sums[2];
  multiply_rows<2>(w, x + row * in, known ? spans_of(w[0]) : 0, first, out, tid, kRowTeams, partial, sums);
  if (tid < kRowsPerGroup && first + tid < out)
    y[choice * out + first + tid] = known ? silu(sums[0]) * sums[1] : NAN;
}

INSTANTIATE_AFFINE(affine_experts_swiglu)
