// Attention for decode, second half.
#include "attention.h"

constant bool has_sinks [[function_constant(0)]];

constexpr constant uint kSimdgroups =
    8;  // of a threadgroup: each has some of the blocks, a lane has a column

// y = sum_b e^(m_b - M) o_b / (sum_b e^(m_b - M) l_b + e^(sink - M)), M the largest m_b and sink; see
// attention_partials. Blocks with l = 0 are skipped; a row of such blocks alone is 0.
// Layout: contiguous; a sink is a logit, neither scaled nor capped.
// Dispatch: groups (ceil_div(dim, 32), heads, tokens), threads (32 * kSimdgroups)
// Requires: tokens > 0; heads > 0; blocks > 0; dim > 0
// Numerics: f32; NaN and inf reach only their own row.
kernel void attention_merge(
    device const float* o [[buffer(0)]],                                    // [tokens, heads, blocks, dim]
    device const float* m [[buffer(1)]],                                    // [tokens, heads, blocks]
    device const float* l [[buffer(2)]],                                    // [tokens, heads, blocks]
    device const float* sinks [[buffer(3), function_constant(has_sinks)]],  // [heads]
    device float* y [[buffer(4)]],                                          // [tokens, heads, dim]
    constant uint& tokens [[buffer(5)]],
    constant uint& heads [[buffer(6)]],
    constant uint& blocks [[buffer(7)]],
    constant uint& dim [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float sums[kSimdgroups * 32];
  const ulong row = ulong(tg.z) * heads + tg.y;
  const uint column = tg.x * 32 + lane;
  o += row * blocks * dim + min(column, dim - 1);
  m += row * blocks;
  l += row * blocks;

  float top = -INFINITY;
  for (uint b = lane; b < blocks; b += 32) {
    if (l[b] != 0.0f) top = max(top, m[b]);
  }
  top = simd_max(top);
  float total = 0.0f;
  for (uint b = lane; b < blocks; b += 32) {
    if (l[b] != 0.0f) total = fma(softmax_weight(m[b], top), l[b], total);
  }
  total = simd_sum(total);

  // Each lane has the weight of a block; a negative one is that of a block without keys.
  float sum = 0.0f;
  for (uint first = simd; first < blocks; first += kSimdgroups * 32) {
    const uint own = min(first + lane * kSimdgroups, blocks - 1);
    const float weight = l[own] != 0.0f ? softmax_weight(m[own], top) : -1.0f;
    const uint count = min(32u, (blocks - first + kSimdgroups - 1) / kSimdgroups);
    for (uint b = 0; b < count; ++b) {
      const float factor = simd_shuffle(weight, ushort(b));
      if (!(factor < 0.0f)) sum = fma(factor, o[ulong(first + b * kSimdgroups) * dim], sum);
    }
  }
  sums[simd * 32 + lane] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd > 0 || column >= dim) return;
  sum = 0.0f;
  for (uint s = 0; s < kSimdgroups; ++s) sum += sums[s * 32 + lane];
  y[row * dim + column] = sum * normalizer(top, total, has_sinks ? sinks[tg.y] : -INFINITY);
}
