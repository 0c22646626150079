#include "../common/row_teams.h"
#include "experts.h"

// y[t, j] = W[ids[t, j]] x[t] for the k experts of each token; x has one row per token, or one per (t, j).
// Layout: matrix m is m * stride elements after each base; expert e has matrix e, by slot slots[e].
// Dispatch: groups (ceil_div(out, kTeamRows), k, tokens), threads (kRowThreads)
// Requires: valid_teams; group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0;
//   x_rows == 1 || x_rows == k; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts;
//   bits % 4 > 0 || packed_stride % 4 == 0
// Work: products (tokens * k * in * out), bytes (min(tokens * k, matrices) * out * in * (bits + 1) / 8)
// Numerics: as affine_matvec. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <uint bits, typename S>
kernel void affine_experts_matvec(
    device const float* x [[buffer(0)]],  // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],  // [tokens, k]
    device const uint* packed
    [[buffer(2)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const S* scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group_size]
    device const S* biases [[buffer(4)]],  // [(matrices - 1) * biases_stride + out * in / group_size]
    device const int* slots [[buffer(5), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(6)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(7)]],
    constant uint& k [[buffer(8)]],
    constant uint& x_rows [[buffer(9)]],
    constant uint& in [[buffer(10)]],
    constant uint& out [[buffer(11)]],
    constant uint& group_size [[buffer(12)]],
    constant uint& experts [[buffer(13)]],
    constant uint& matrices [[buffer(14)]],
    constant ulong& packed_stride [[buffer(15)]],
    constant ulong& scales_stride [[buffer(16)]],
    constant ulong& biases_stride [[buffer(17)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const Strides strides = {packed_stride, scales_stride, biases_stride};
  const Affine<bits, S> w =
      matrix_at<bits, S>(packed, scales, biases, known ? uint(number) : 0, strides, in, group_size);

  const ulong row = ulong(tg.z) * x_rows + tg.y % x_rows;
  const uint first = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + row * in, known ? spans_of(w) : 0, first, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && first + tid < out) y[choice * out + first + tid] = known ? sums[0] : NAN;
}

INSTANTIATE_AFFINE(affine_experts_matvec)
