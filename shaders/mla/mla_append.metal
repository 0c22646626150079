// New rows of the cache of latent attention.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// latents[position + t] = latent[t] and rope_keys[position + t] = rope_key[t].
// Layout: one row for each position, for all heads.
// Dispatch: groups (ceil_div(rank + rope, kThreads), tokens), threads (kThreads)
// Requires: tokens > 0; rank > 0; rope > 0; position + tokens <= capacity
// Work: bytes (tokens * (rank + rope) * 8)
// Numerics: rounded once to the cache's type; values out of the range of f16 become inf.
template <typename T>
kernel void mla_append(
    device const float* latent [[buffer(0)]],    // [tokens, rank]
    device const float* rope_key [[buffer(1)]],  // [tokens, rope]
    device T* latents [[buffer(2)]],             // [capacity, rank]
    device T* rope_keys [[buffer(3)]],           // [capacity, rope]
    constant uint& tokens [[buffer(4)]],
    constant uint& capacity [[buffer(5)]],
    constant uint& rank [[buffer(6)]],
    constant uint& rope [[buffer(7)]],
    constant uint& position [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= rank + rope) return;

  const ulong row = position + tg.y;
  if (i < rank)
    latents[row * rank + i] = T(latent[ulong(tg.y) * rank + i]);
  else
    rope_keys[row * rope + i - rank] = T(rope_key[ulong(tg.y) * rope + i - rank]);
}

template [[host_name("mla_append_f32")]] kernel decltype(mla_append<float>) mla_append<float>;
template [[host_name("mla_append_f16")]] kernel decltype(mla_append<half>) mla_append<half>;
template [[host_name("mla_append_bf16")]] kernel decltype(mla_append<bfloat>) mla_append<bfloat>;
