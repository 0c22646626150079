// Latent attention for prefill: a chunk of queries over the cache, in tiles of simdgroup matrices.
#include "../attention/tiled.h"
#include "latent_queries.h"

// Rows latent | rope key.
template <typename T>
struct LatentSource {
  device const T* latents;
  device const T* rope_keys;
  uint rank;
  uint rope;

  vec<T, 4> four(uint key, uint column) const {
    device const T* source = latents + ulong(key) * rank + column;
    if (column >= rank) source = rope_keys + ulong(key) * rope + column - rank;
    return *(device const vec<T, 4>*)source;
  }
};

// y = sum_j p_j latent_j over the keys a query sees, causally; p is the softmax of
// scale * (q . latent + q_rope . rope_key).
// Layout: key j in row j, the queries' own rows included; all heads read the same rows.
// Dispatch: groups (ceil_div(tokens * heads, kRows)), threads (kThreads)
// Requires: tokens > 0; context > 0; context <= capacity; heads > 0; rank > 0; rank % 8 == 0;
//   rank <= kMaxRank; rope > 0; rope % 8 == 0; rope <= kMaxRope; context + tokens <= 2147483647;
//   tokens * heads <= 2147483647
// Work: products (tokens * heads * context * (2 * rank + rope)),
//   bytes (context * (rank + rope) * sizeof(T))
// Numerics: f32, online softmax; no visible key gives 0. NaN and inf reach only queries that see them.
template <typename T>
kernel void mla_attention(
    device const float* q [[buffer(0)]],       // [tokens, heads, rank] aligned 16
    device const float* q_rope [[buffer(1)]],  // [tokens, heads, rope]
    device const T* latents [[buffer(2)]],     // [capacity, rank] aligned 16
    device const T* rope_keys [[buffer(3)]],   // [capacity, rope] aligned 16
    device float* y [[buffer(4)]],             // [tokens, heads, rank]
    constant uint& tokens [[buffer(5)]],
    constant uint& context [[buffer(6)]],
    constant uint& capacity [[buffer(7)]],
    constant uint& heads [[buffer(8)]],
    constant uint& rank [[buffer(9)]],
    constant uint& rope [[buffer(10)]],
    constant float& scale [[buffer(11)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 tile[kTileFloats / 4];
  threadgroup bool finite[kSimdgroups];

  const uint first = tg * kRows;
  const TileRows own = {first, min(kRows, tokens * heads - first), heads, heads, 0};
  const LatentSource<T> rows = {latents, rope_keys, rank, rope};
  attend_tiles<T, kMaxRank, kRows, kMaxRank + kMaxRope>(
      LatentQueries{q, q_rope, rank, rope}, rows, rows, own, make_mask(tokens, context, 0, true), rank + rope,
      rank, scale, 0.0f, nullptr, y, TileMemory{tile, finite}, tid, lane, simd);
}

template [[host_name("mla_attention_f32")]] kernel decltype(mla_attention<float>) mla_attention<float>;
template [[host_name("mla_attention_f16")]] kernel decltype(mla_attention<half>) mla_attention<half>;
template [[host_name("mla_attention_bf16")]] kernel decltype(mla_attention<bfloat>) mla_attention<bfloat>;
