#include "../common/row_teams.h"
#include "../common/slots.h"
#include "fp.h"

// y[t, j] = W[ids[t, j]] x[t] for the k experts of each token; x has one row per token, or one per (t, j).
// Layout: matrix m is m * stride elements after each base; expert e has matrix e, by slot slots[e].
// Dispatch: groups (ceil_div(out, kTeamRows), k, tokens), threads (kRowThreads)
// Requires: valid_teams; in > 0; in % 32 == 0; x_rows == 1 || x_rows == k; experts > 0; matrices > 0;
//   matrices <= kNoMatrix; by_slot || matrices == experts;
//   bits % 4 > 0 || packed_stride % 4 == 0
// Work: products (tokens * k * in * out), bytes (min(tokens * k, matrices) * out * in * (bits + 1) / 8)
// Numerics: as fp_matvec. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <uint bits, uint group>
kernel void fp_experts_matvec(
    device const float* x [[buffer(0)]],  // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],  // [tokens, k]
    device const uint* packed
    [[buffer(2)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const uchar* scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group]
    device const float* global_scale
    [[buffer(4), function_constant(has_global_scale)]],  // [(matrices - 1) * global_stride + 1]
    device const int* slots [[buffer(5), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(6)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(7)]],
    constant uint& k [[buffer(8)]],
    constant uint& x_rows [[buffer(9)]],
    constant uint& in [[buffer(10)]],
    constant uint& out [[buffer(11)]],
    constant uint& experts [[buffer(12)]],
    constant uint& matrices [[buffer(13)]],
    constant ulong& packed_stride [[buffer(14)]],
    constant ulong& scales_stride [[buffer(15)]],
    constant ulong& global_stride [[buffer(16)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const Fp<bits, group> w = matrix_at<bits, group>(packed, scales, matrix, packed_stride, scales_stride, in);
  const float factor = has_global_scale ? global_scale[matrix * global_stride] / kGlobalUnit : 1.0f;

  const ulong row = ulong(tg.z) * x_rows + tg.y % x_rows;
  const uint first = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + row * in, known ? spans_of(w) : 0, first, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && first + tid < out) y[choice * out + first + tid] = known ? sums[0] * factor : NAN;
}

INSTANTIATE_FP(fp_experts_matvec)
