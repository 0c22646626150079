// Rows of quantised matrices times few vectors; common/cuda/few_rows.h is the form for NVIDIA's matrix units, which reads
// each weight once for all of them.
#pragma once

#include "activations.h"
#include "rows.h"

// Products p[m] = x * w[m]^T * factors[m]: with one matrix y = p[0], with two y = silu(p[0]) * p[1], for the kFewTokens
// tokens and kRowsPerGroup outs of threadgroup `tg` that exist. `partial` has room for count * kRowPartials floats.
template <uint count, typename W>
inline void multiply_few(
    thread const W* w,
    device const float* x,
    uint tokens,
    uint in,
    uint2 tg,
    uint out,
    float2 factors,
    device float* y,
    uint tid,
    threadgroup float* partial) {
  const uint first = tg.x * kRowsPerGroup;
  const uint end = min(tokens, (tg.y + 1) * kFewTokens);
  for (uint token = tg.y * kFewTokens; token < end; ++token) {
    float sums[count];
    multiply_rows<count>(w, x + ulong(token) * in, spans_of(w[0]), first, out, tid, kRowTeams, partial, sums);
    if (tid < kRowsPerGroup && first + tid < out)
      y[ulong(token) * out + first + tid] =
          count == 1 ? sums[0] * factors.x : silu(sums[0] * factors.x) * (sums[count - 1] * factors.y);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the next token uses `partial` again
  }
}
