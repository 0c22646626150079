// Separates the parts that latent attention projects together.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// Heads of q are nope | rope; a row of kv is latent | rope key, one for all heads.
// Layout: all row-major and contiguous; outputs overlap neither inputs nor each other.
// Dispatch: groups (ceil_div(max(nope, rank) + rope, kThreads), heads + 1, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; nope > 0; rope > 0; rank > 0
// Numerics: values are copied.
kernel void mla_split(
    device const float* q [[buffer(0)]],   // [tokens, heads, nope + rope]
    device const float* kv [[buffer(1)]],  // [tokens, rank + rope]
    device float* q_nope [[buffer(2)]],    // [tokens, heads, nope]
    device float* q_rope [[buffer(3)]],    // [tokens, heads, rope]
    device float* latent [[buffer(4)]],    // [tokens, rank]
    device float* rope_key [[buffer(5)]],  // [tokens, rope]
    constant uint& tokens [[buffer(6)]],
    constant uint& heads [[buffer(7)]],
    constant uint& nope [[buffer(8)]],
    constant uint& rope [[buffer(9)]],
    constant uint& rank [[buffer(10)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  const bool is_query = tg.y < heads;
  const uint plain = is_query ? nope : rank;
  if (i >= plain + rope) return;

  const ulong row = is_query ? ulong(tg.z) * heads + tg.y : tg.z;
  const float value = (is_query ? q : kv)[row * (plain + rope) + i];
  if (i < plain)
    (is_query ? q_nope : latent)[row * plain + i] = value;
  else
    (is_query ? q_rope : rope_key)[row * rope + i - plain] = value;
}
