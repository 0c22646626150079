#include "dense_rows.h"

// y = x W^T for few tokens, or for a W with rows of any length. The bits of a (token, row) depend on nothing else.
// Layout: all row-major and contiguous.
// Dispatch: groups (ceil_div(out, kTeamRows), ceil_div(tokens, kFewTokens)), threads (kRowThreads)
// Requires: valid_teams; tokens > 0; out > 0; in > 0
// Work: products (tokens * in * out)
// Numerics: f32 fma in each lane, then a tree; NaN and inf reach only their own row or token.
template <typename W>
kernel void dense_matvec(
    device const float* x [[buffer(0)]],   // [tokens, in] aligned 16
    device const W* weight [[buffer(1)]],  // [out, in] aligned 16
    device float* y [[buffer(2)]],         // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& out [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const uint first = tg.x * kTeamRows;
  const uint end = min(tokens, (tg.y + 1) * kFewTokens);
  for (uint token = tg.y * kFewTokens; token < end; ++token) {
    const float sum =
        multiply_dense(weight, x + ulong(token) * in, in, has_units(in, 0), first, out, tid, partial);
    if (tid < kTeamRows && first + tid < out) y[ulong(token) * out + first + tid] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the next token uses `partial` again
  }
}

INSTANTIATE_DENSE(dense_matvec)
