#include "../common/row_teams.h"
#include "fp.h"

// y = x W^T for few tokens; W[row, i] = code * scale of its group.
// Layout: row-major; packed holds the codes of a row one after another, the first in the lowest bits.
// Dispatch: groups (ceil_div(out, kTeamRows), tokens), threads (kRowThreads)
// Requires: valid_teams; in > 0; in % 32 == 0
// Work: products (tokens * in * out)
// Numerics: f32; scale * dot(code, x) per group, the sum times global_scale / 2688.
template <uint bits, uint group>
kernel void fp_matvec(
    device const float* x [[buffer(0)]],       // [tokens, in] aligned 16
    device const uint* packed [[buffer(1)]],   // [out, in / 32 * bits] aligned 16
    device const uchar* scales [[buffer(2)]],  // [out, in / group]
    device const float* global_scale [[buffer(3), function_constant(has_global_scale)]],  // [1]
    device float* y [[buffer(4)]],                                                        // [tokens, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const Fp<bits, group> w = {packed, scales, in / kUnit};
  const float factor = has_global_scale ? global_scale[0] / kGlobalUnit : 1.0f;
  const uint first = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + ulong(tg.y) * in, spans_of(w), first, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && first + tid < out) y[ulong(tg.y) * out + first + tid] = sums[0] * factor;
}

INSTANTIATE_FP(fp_matvec)
