// Latent attention for prefill: a chunk of queries over the cache, in tiles of simdgroup matrices.
#include "../attention/tiled.h"
#include "sizes.h"

constexpr constant uint kRows = 8;  // (query, head) pairs of a threadgroup
constexpr constant uint kQueryStride = kMaxRank + kMaxRope + kPad;

// Rows latent | rope key, or with columns = rank the latents alone.
template <typename T>
struct LatentSource {
  device const T* latents;
  device const T* rope_keys;
  uint rank;
  uint rope;
  uint columns;

  bool load(KeyRange keys, uint column, uint tid, threadgroup float* tile) const {
    bool finite = true;
    for (uint i = tid; i < kKeys * kChunk / 4; i += kThreads) {
      const uint key = i / (kChunk / 4);
      const uint at = i % (kChunk / 4) * 4;
      const ulong row = keys.first + key;
      float4 x = 0;
      if (row < keys.end && column + at < columns) {
        device const T* source = latents + row * rank + column + at;
        if (column + at >= rank) source = rope_keys + row * rope + column + at - rank;
        x = float4(*(device const vec<T, 4>*)source);
      }
      for (uint c = 0; c < 4; ++c) tile[key * kChunkStride + at + c] = x[c];
      finite = finite && all(isfinite(x));
    }
    return finite;
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
    device const float* q [[buffer(0)]],       // [tokens, heads, rank]
    device const float* q_rope [[buffer(1)]],  // [tokens, heads, rope]
    device const T* latents [[buffer(2)]],     // [capacity, rank]
    device const T* rope_keys [[buffer(3)]],   // [capacity, rope]
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
  threadgroup float queries[kRows * kQueryStride];
  threadgroup float tile[kKeys * kChunkStride];
  threadgroup float weights[kRows * kWeightStride];
  threadgroup float factors[kRows * kBlock];
  threadgroup float scratch[kSimdgroups * kBlock * kBlock];
  threadgroup bool finite[kSimdgroups];

  const uint first = tg * kRows;
  const TileRows own = {first, min(kRows, tokens * heads - first), heads, heads, 0};
  const LatentSource<T> keys = {latents, rope_keys, rank, rope, rank + rope};
  const LatentSource<T> values = {latents, rope_keys, rank, rope, rank};
  load_queries<kRows>(q, rank, own, queries, kQueryStride, 0, tid);
  load_queries<kRows>(q_rope, rope, own, queries, kQueryStride, rank, tid);
  attend_tiles<kMaxRank, kRows, kMaxRank + kMaxRope>(
      keys, values, own, make_mask(tokens, context, 0, true), rank + rope, rank, scale, 0.0f, nullptr, y,
      TileMemory{queries, tile, weights, factors, scratch, finite}, tid, lane, simd);
}

template [[host_name("mla_attention_f32")]] kernel decltype(mla_attention<float>) mla_attention<float>;
template [[host_name("mla_attention_f16")]] kernel decltype(mla_attention<half>) mla_attention<half>;
template [[host_name("mla_attention_bf16")]] kernel decltype(mla_attention<bfloat>) mla_attention<bfloat>;
