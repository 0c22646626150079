// Latent attention for decode, first half: the keys of each query split over threadgroups.
#include "latent_block.h"

template <typename T>
struct LatentRows {
  static constexpr constant bool kAhead = true;

  device const T* latents;    // [capacity, rank]
  device const T* rope_keys;  // [capacity, rope]
  uint rank;
  uint rope;

  Four<T> four(uint key, uint column) const {
    device const T* from = latents + ulong(key) * rank + column;
    if (column >= rank) from = rope_keys + ulong(key) * rope + column - rank;
    return *(device const Four<T>*)from;
  }
};

// The keys that a query sees, causally, are cut in order into blocks. Of each, m is the largest score
// scale * (q . latent + q_rope . rope_key), l = sum e^(score - m), o = sum e^(score - m) * latent; no keys:
// m = -inf, l = o = 0. attention_merge joins them.
// Layout: key j in row j, the queries' own rows included; all heads read the same rows.
// Dispatch: groups (ceil_div(heads, kHeads), blocks, tokens), threads (kThreads)
// Requires: tokens > 0; context > 0; context <= capacity; heads > 0; rank > 0; rank % 8 == 0;
//   rank <= kMaxRank; rope > 0; rope % 8 == 0; rope <= kMaxRope; context + tokens <= 2147483647;
//   0 < blocks; blocks <= 65535
// Work: products (tokens * heads * context * (2 * rank + rope)),
//   bytes (context * (rank + rope) * sizeof(T))
// Numerics: f32, online softmax with some keys at a time. NaN and inf reach only queries that see them.
template <typename T>
kernel void mla_partials(
    device const float* q [[buffer(0)]],       // [tokens, heads, rank] aligned 16
    device const float* q_rope [[buffer(1)]],  // [tokens, heads, rope]
    device const T* latents [[buffer(2)]],     // [capacity, rank] aligned 16
    device const T* rope_keys [[buffer(3)]],   // [capacity, rope] aligned 16
    device float* o [[buffer(4)]],             // [tokens, heads, blocks, rank]
    device float* m [[buffer(5)]],             // [tokens, heads, blocks]
    device float* l [[buffer(6)]],             // [tokens, heads, blocks]
    constant uint& tokens [[buffer(7)]],
    constant uint& context [[buffer(8)]],
    constant uint& capacity [[buffer(9)]],
    constant uint& heads [[buffer(10)]],
    constant uint& rank [[buffer(11)]],
    constant uint& rope [[buffer(12)]],
    constant uint& blocks [[buffer(13)]],
    constant float& scale [[buffer(14)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup Four<T> rows[row_fours<T>()];
  threadgroup float partials[partial_floats<T>()];
  threadgroup float4 weights[weight_fours<T>()];

  const LatentRows<T> source = {latents, rope_keys, rank, rope};
  const LatentBlock block = latent_block(tg, make_mask(tokens, context, 0, true).end(tg.z), heads, blocks);
  attend_latents(
      source, block, q, q_rope, o, m, l, rank, rope, blocks, scale, LatentMemory<T>{rows, partials, weights},
      lane, simd);
}

template [[host_name("mla_partials_f32")]] kernel decltype(mla_partials<float>) mla_partials<float>;
template [[host_name("mla_partials_f16")]] kernel decltype(mla_partials<half>) mla_partials<half>;
template [[host_name("mla_partials_bf16")]] kernel decltype(mla_partials<bfloat>) mla_partials<bfloat>;
