#include "../common/row_teams.h"
#include "affine.h"

// y = x W^T for few tokens; W[row, i] = q * scale + bias of its group.
// Layout: row-major; packed holds a little-endian stream of `bits`-bit values per row.
// Dispatch: groups (ceil_div(out, kTeamRows), tokens), threads (kRowThreads)
// Requires: valid_teams; group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0
// Work: products (tokens * in * out)
// Numerics: f32; scale * dot(q, x) + bias * sum(x) per 32 values.
template <uint bits, typename S>
kernel void affine_matvec(
    device const float* x [[buffer(0)]],      // [tokens, in] aligned 16
    device const uint* packed [[buffer(1)]],  // [out, in / 32 * bits] aligned 16
    device const S* scales [[buffer(2)]],     // [out, in / group_size]
    device const S* biases [[buffer(3)]],     // [out, in / group_size]
    device float* y [[buffer(4)]],            // [tokens, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    constant uint& group_size [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const Affine<bits, S> w = affine_matrix<bits, S>(packed, scales, biases, in, group_size);
  const uint first = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + ulong(tg.y) * in, spans_of(w), first, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && first + tid < out) y[ulong(tg.y) * out + first + tid] = sums[0];
}

INSTANTIATE_AFFINE(affine_matvec)
