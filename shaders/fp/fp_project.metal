#include "../common/joined.h"
#include "fp.h"

// y = x W^T for each of up to four matrices a, b, c and d of one format, as fp_matvec.
// Layout: as fp_matvec; there are no global scales.
// Dispatch: groups (ceil_div(a_out, kRowsPerGroup) + ceil_div(b_out, kRowsPerGroup) +
//   ceil_div(c_out, kRowsPerGroup) + ceil_div(d_out, kRowsPerGroup)), threads (kRowThreads)
// Requires: in > 0; in % 32 == 0; a_out > 0; has_b || b_out == 0; has_c || c_out == 0; has_d || d_out == 0;
//   has_b || !has_c; has_c || !has_d
// Numerics: as fp_matvec.
template <uint bits, uint group>
kernel void fp_project(
    device const float* x [[buffer(0)]],         // [in] aligned 16
    device const uint* a_packed [[buffer(1)]],   // [a_out, in / 32 * bits] aligned 16
    device const uchar* a_scales [[buffer(2)]],  // [a_out, in / group]
    device float* a_y [[buffer(3)]],             // [a_out]
    device const uint* b_packed
    [[buffer(4), function_constant(has_b)]],  // [b_out, in / 32 * bits] aligned 16
    device const uchar* b_scales [[buffer(5), function_constant(has_b)]],  // [b_out, in / group]
    device float* b_y [[buffer(6), function_constant(has_b)]],             // [b_out]
    device const uint* c_packed
    [[buffer(7), function_constant(has_c)]],  // [c_out, in / 32 * bits] aligned 16
    device const uchar* c_scales [[buffer(8), function_constant(has_c)]],  // [c_out, in / group]
    device float* c_y [[buffer(9), function_constant(has_c)]],             // [c_out]
    device const uint* d_packed
    [[buffer(10), function_constant(has_d)]],  // [d_out, in / 32 * bits] aligned 16
    device const uchar* d_scales [[buffer(11), function_constant(has_d)]],  // [d_out, in / group]
    device float* d_y [[buffer(12), function_constant(has_d)]],             // [d_out]
    constant uint& in [[buffer(13)]],
    constant uint& a_out [[buffer(14)]],
    constant uint& b_out [[buffer(15)]],
    constant uint& c_out [[buffer(16)]],
    constant uint& d_out [[buffer(17)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  using W = Fp<bits, group>;
  const uint units = in / kUnit;
  Joined<W> own = {{a_packed, a_scales, units}, a_y, a_out, tg, 0};
  if (is_past(own) && has_b) own = following(own, W{b_packed, b_scales, units}, b_y, b_out);
  if (is_past(own) && has_c) own = following(own, W{c_packed, c_scales, units}, c_y, c_out);
  if (is_past(own) && has_d) own = following(own, W{d_packed, d_scales, units}, d_y, d_out);

  const uint first = own.group * kRowsPerGroup;
  float sums[1];
  multiply_rows<1>(&own.w, x, spans_of(own.w), first, own.out, tid, kRowTeams, partial, sums);
  if (tid < kRowsPerGroup && first + tid < own.out) own.y[first + tid] = sums[0];
}

INSTANTIATE_FP(fp_project)
