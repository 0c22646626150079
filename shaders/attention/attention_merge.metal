// Attention for decode, second half.
#include "attention.h"

constant bool has_sinks [[function_constant(0)]];

constexpr constant uint kThreads = 128;

// y = sum_b e^(m_b - M) o_b / (sum_b e^(m_b - M) l_b + e^(sink - M)), M the largest m_b and sink; see
// attention_partials. Blocks with l = 0 are skipped; a row of such blocks alone is 0.
// Layout: contiguous; a sink is a logit, neither scaled nor capped.
// Dispatch: groups (heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; blocks > 0; dim > 0
// Numerics: f32, blocks ascending; NaN and inf reach only their own row.
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
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const ulong row = ulong(tg.y) * heads + tg.x;
  o += row * blocks * dim;
  m += row * blocks;
  l += row * blocks;

  float top = -INFINITY;
  for (uint b = 0; b < blocks; ++b) {
    if (l[b] != 0.0f) top = max(top, m[b]);
  }
  float total = 0.0f;
  for (uint b = 0; b < blocks; ++b) {
    if (l[b] != 0.0f) total = fma(softmax_weight(m[b], top), l[b], total);
  }
  const float inverse = normalizer(top, total, has_sinks ? sinks[tg.x] : -INFINITY);
  for (uint i = tid; i < dim; i += kThreads) {
    float sum = 0.0f;
    for (uint b = 0; b < blocks; ++b) {
      if (l[b] != 0.0f) sum = fma(softmax_weight(m[b], top), o[ulong(b) * dim + i], sum);
    }
    y[row * dim + i] = sum * inverse;
  }
}
