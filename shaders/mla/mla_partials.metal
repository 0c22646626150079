// Latent attention for decode, first half: the keys of each query split over simdgroups.
#include "heads.h"

constexpr constant uint kSimdgroups = 4;   // of a threadgroup; each takes one block
constexpr constant uint kFewestKeys = 16;  // of a block, except the last one that has any
constexpr constant uint kHeads = 2;        // that share each load of a key

// The keys that a query sees, causally, are cut in order into blocks. Of each, m is the largest score
// scale * (q . latent + q_rope . rope_key), l = sum e^(score - m), o = sum e^(score - m) * latent; no keys:
// m = -inf, l = o = 0. attention_merge joins them.
// Layout: key j in row j, the queries' own rows included; all heads read the same rows.
// Dispatch: groups (ceil_div(heads, kHeads), ceil_div(blocks, kSimdgroups), tokens),
//   threads (32 * kSimdgroups)
// Requires: tokens > 0; context > 0; context <= capacity; heads > 0; rank > 0; rank % 8 == 0;
//   rank <= kMaxRank; rope > 0; rope % 8 == 0; rope <= kMaxRope; context + tokens <= 2147483647;
//   0 < blocks; blocks <= 65536
// Numerics: f32, online softmax with some keys at a time. NaN and inf reach only queries that see them.
template <typename T>
kernel void mla_partials(
    device const float* q [[buffer(0)]],       // [tokens, heads, rank]
    device const float* q_rope [[buffer(1)]],  // [tokens, heads, rope]
    device const T* latents [[buffer(2)]],     // [capacity, rank]
    device const T* rope_keys [[buffer(3)]],   // [capacity, rope]
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
  const uint block = tg.y * kSimdgroups + simd;
  if (block >= blocks) return;

  const uint first = tg.x * kHeads;
  const uint count = min(kHeads, heads - first);
  const ulong row = ulong(tg.z) * heads + first;
  const uint end = make_mask(tokens, context, 0, true).end(tg.z);
  const uint length = max(kFewestKeys, (end + blocks - 1) / blocks);
  const uint from = uint(min(ulong(block) * length, ulong(end)));
  const uint to = min(from + length, end);

  LatentHeads<kHeads> group;
  group.load(q + row * rank, q_rope + row * rope, rank, rope, count, lane);
  for (uint at = from; at < to; at += group.kBatch) {
    LatentBatch<group.kBatch> batch;
#pragma unroll
    for (uint b = 0; b < group.kBatch; ++b) {
      const ulong key = min(at + b, to - 1);
      batch.latents[b].load(latents + key * rank, rank, lane);
      batch.rope_keys[b].load(rope_keys + key * rope, rope, lane);
    }
    group.add(batch, to - at, scale, lane);
  }
  const ulong target = row * blocks + block;
  group.store(o + target * rank, m + target, l + target, blocks, rank, count, lane);
}

template [[host_name("mla_partials_f32")]] kernel decltype(mla_partials<float>) mla_partials<float>;
template [[host_name("mla_partials_f16")]] kernel decltype(mla_partials<half>) mla_partials<half>;
template [[host_name("mla_partials_bf16")]] kernel decltype(mla_partials<bfloat>) mla_partials<bfloat>;
