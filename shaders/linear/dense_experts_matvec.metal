#include "../common/slots.h"
#include "dense_rows.h"

// y[t, j] = W[ids[t, j]] x[t] for the k experts of each token; x has one row per token, or one per (t, j).
// Layout: matrix m is m * weight_stride elements after the base; expert e has matrix e, by slot slots[e].
// Dispatch: groups (ceil_div(out, kTeamRows), k, tokens), threads (kRowThreads)
// Requires: valid_teams; in > 0; x_rows == 1 || x_rows == k; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts
// Work: products (tokens * k * in * out), bytes (min(tokens * k, matrices) * in * out * sizeof(W))
// Numerics: as dense_matvec. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <typename W>
kernel void dense_experts_matvec(
    device const float* x [[buffer(0)]],   // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],   // [tokens, k]
    device const W* weight [[buffer(2)]],  // [(matrices - 1) * weight_stride + out * in] aligned 16
    device const int* slots [[buffer(3), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(4)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& k [[buffer(6)]],
    constant uint& x_rows [[buffer(7)]],
    constant uint& in [[buffer(8)]],
    constant uint& out [[buffer(9)]],
    constant uint& experts [[buffer(10)]],
    constant uint& matrices [[buffer(11)]],
    constant ulong& weight_stride [[buffer(12)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const ulong begin = (known ? uint(number) : 0) * weight_stride;
  x += (ulong(tg.z) * x_rows + tg.y % x_rows) * in;
  const uint first = tg.x * kTeamRows;
  const float sum = multiply_dense(
      weight + begin, x, known ? in : 0, has_units(in, weight_stride), first, out, tid, partial);
  if (tid < kTeamRows && first + tid < out) y[choice * out + first + tid] = known ? sum : NAN;
}

INSTANTIATE_DENSE(dense_experts_matvec)
