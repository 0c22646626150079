// Attention for decode, second half.
#include "../common/activations.h"
#include "merge.h"

constant bool has_sinks [[function_constant(0)]];
constant bool has_gate [[function_constant(1)]];

// y = sum_b e^(m_b - M) o_b / (sum_b e^(m_b - M) l_b + e^(sink - M)), M the largest m_b and sink; see
// attention_partials. Blocks with l = 0 are skipped; a row of such blocks alone is 0. Then y * sigmoid(gate).
// Layout: contiguous; a sink is a logit, neither scaled nor capped; a gate is the second half of its head.
// Dispatch: groups (ceil_div(dim, 32), heads, tokens), threads (32 * kMergeSimdgroups)
// Requires: tokens > 0; heads > 0; blocks > 0; dim > 0
// Numerics: f32; NaN and inf reach only their own row.
kernel void attention_merge(
    device const float* o [[buffer(0)]],                                    // [tokens, heads, blocks, dim]
    device const float* m [[buffer(1)]],                                    // [tokens, heads, blocks]
    device const float* l [[buffer(2)]],                                    // [tokens, heads, blocks]
    device const float* sinks [[buffer(3), function_constant(has_sinks)]],  // [heads]
    device const float* gate [[buffer(4), function_constant(has_gate)]],    // [tokens, heads, 2, dim]
    device float* y [[buffer(5)]],                                          // [tokens, heads, dim]
    constant uint& tokens [[buffer(6)]],
    constant uint& heads [[buffer(7)]],
    constant uint& blocks [[buffer(8)]],
    constant uint& dim [[buffer(9)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[kMergeSimdgroups * 32];
  const ulong row = ulong(tg.z) * heads + tg.y;
  const uint column = tg.x * 32 + lane;
  m += row * blocks;
  l += row * blocks;
  const RowTotal all = row_total(m, l, blocks, lane);
  float sum;
  sum_blocks<1>(o + row * blocks * dim, m, l, all.top, all.used, dim, column, simd, lane, &sum);
  partial[simd * 32 + lane] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd > 0 || column >= dim) return;
  sum = 0.0f;
#pragma unroll
  for (uint s = 0; s < kMergeSimdgroups; ++s) sum += partial[s * 32 + lane];
  sum *= normalizer(all.top, all.total, has_sinks ? sinks[tg.y] : -INFINITY);
  if (has_gate) sum *= sigmoid(gate[(2 * row + 1) * dim + column]);
  y[row * dim + column] = sum;
}
