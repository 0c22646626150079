#include "../common/row_teams.h"
#include "gguf.h"

// y = x W^T for few tokens; W[row, i] = code * scale of its group, plus its bias in some types.
// Layout: row-major; a row of `blocks` is in / block blocks of GGML type `type`.
// Dispatch: groups (ceil_div(out, kTeamRows), tokens), threads (kRowThreads)
// Requires: valid_teams; in > 0; in % block == 0
// Work: products (tokens * in * out)
// Numerics: f32; scale * dot(code, x) + bias * sum(x) per group of 16 or 32 values.
template <uint type, uint block, uint block_bytes>
kernel void gguf_matvec(
    device const float* x [[buffer(0)]],       // [tokens, in] aligned 16
    device const uchar* blocks [[buffer(1)]],  // [out, in / block * block_bytes] aligned 16
    device float* y [[buffer(2)]],             // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& in [[buffer(4)]],
    constant uint& out [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const Blocks<type, block, block_bytes> w = {blocks, in / kUnit};
  const uint first = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + ulong(tg.y) * in, spans_of(w), first, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && first + tid < out) y[ulong(tg.y) * out + first + tid] = sums[0];
}

INSTANTIATE_GGUF(gguf_matvec)
