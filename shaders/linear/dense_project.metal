#include "../common/joined.h"
#include "dense.h"

// y = x W^T + bias for each of up to four matrices a, b, c and d of one type, as dense_matvec.
// Layout: as dense_matvec.
// Dispatch: groups (ceil_div(a_out, kRowsPerGroup) + ceil_div(b_out, kRowsPerGroup) +
//   ceil_div(c_out, kRowsPerGroup) + ceil_div(d_out, kRowsPerGroup)), threads (kRowThreads)
// Requires: in > 0; in % 32 == 0; a_out > 0; has_b || b_out == 0; has_c || c_out == 0; has_d || d_out == 0;
//   has_b || !has_c; has_c || !has_d
// Numerics: as dense_matvec and add_bias.
template <typename T>
kernel void dense_project(
    device const float* x [[buffer(0)]],                                   // [in] aligned 16
    device const T* a [[buffer(1)]],                                       // [a_out, in] aligned 16
    device float* a_y [[buffer(2)]],                                       // [a_out]
    device const T* b [[buffer(3), function_constant(has_b)]],             // [b_out, in] aligned 16
    device float* b_y [[buffer(4), function_constant(has_b)]],             // [b_out]
    device const T* c [[buffer(5), function_constant(has_c)]],             // [c_out, in] aligned 16
    device float* c_y [[buffer(6), function_constant(has_c)]],             // [c_out]
    device const T* d [[buffer(7), function_constant(has_d)]],             // [d_out, in] aligned 16
    device float* d_y [[buffer(8), function_constant(has_d)]],             // [d_out]
    device const float* bias [[buffer(9), function_constant(adds_bias)]],  // [a_out + b_out + c_out + d_out]
    constant uint& in [[buffer(10)]],
    constant uint& a_out [[buffer(11)]],
    constant uint& b_out [[buffer(12)]],
    constant uint& c_out [[buffer(13)]],
    constant uint& d_out [[buffer(14)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  using W = Dense<T>;
  const uint units = in / kUnit;
  Joined<W> own = {{a, units}, a_y, a_out, tg, 0};
  if (is_past(own) && has_b) own = following(own, W{b, units}, b_y, b_out);
  if (is_past(own) && has_c) own = following(own, W{c, units}, c_y, c_out);
  if (is_past(own) && has_d) own = following(own, W{d, units}, d_y, d_out);

  const uint first = own.group * kRowsPerGroup;
  float sums[1];
  multiply_rows<1>(&own.w, x, spans_of(own.w), first, own.out, tid, kRowTeams, partial, sums);
  const uint row = first + tid;
  if (tid < kRowsPerGroup && row < own.out) own.y[row] = with_bias(own, row, sums[0], bias);
}

INSTANTIATE_DENSE(dense_project)
