// Weighted sum of each token's rows.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// y[t] = sum_k weights[t, k] * rows[t, k].
// Layout: all row-major and contiguous; y overlaps neither input.
// Dispatch: groups (ceil_div(dim, kThreads), tokens), threads (kThreads)
// Requires: tokens > 0; count > 0; dim > 0
// Numerics: f32 fma in the order of k; a NaN or inf row stays visible under weight 0.
kernel void weighted_sum(
    device const float* rows [[buffer(0)]],     // [tokens, count, dim]
    device const float* weights [[buffer(1)]],  // [tokens, count]
    device float* y [[buffer(2)]],              // [tokens, dim]
    constant uint& tokens [[buffer(3)]],
    constant uint& count [[buffer(4)]],
    constant uint& dim [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;

  rows += ulong(tg.y) * count * dim + i;
  weights += ulong(tg.y) * count;
  float sum = 0.0f;
  for (uint k = 0; k < count; ++k) sum = fma(weights[k], rows[ulong(k) * dim], sum);
  y[ulong(tg.y) * dim + i] = sum;
}
