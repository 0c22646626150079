// Latent attention for decode over a compressed cache, first half: the keys of each query split over threadgroups,
// merged by turbo_merge. A few rows at a time are unpacked into threadgroup memory, once for all heads at work.
#include "../attention/attention.h"
#include "../attention/share.h"
#include "compressed.h"

constexpr constant uint kSimdgroups = 8;  // of a threadgroup
constexpr constant uint kShared = 2;      // heads of a simdgroup: they share each load of a key
constexpr constant uint kHeads = kSimdgroups * kShared;
constexpr constant uint kThreads = 32 * kSimdgroups;
constexpr constant uint kTileKeys = 8;     // unpacked at a time
constexpr constant uint kFewestKeys = 16;  // of a block, except the last one that has any

// The keys that a query sees, causally, are cut in order into blocks. Of each, m is the largest score
// scale * (q . latent + q_rope . rope_key), l = sum e^(score - m), o = sum e^(score - m) * latent; no keys:
// m = -inf, l = o = 0. Latents are rotated, from q to o.
// Layout: key j < context in row j, or its latent in the exact row j % recent where it and all keys after it are
//   in recent_keys; with has_own key context + i is own row i, and query t stands at key
//   context + t, else the last query at the last key. All heads read the same rows.
// Dispatch: groups (ceil_div(heads, kHeads), blocks, tokens), threads (kThreads)
// Requires: bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8; tokens > 0; context <= capacity;
//   !has_recent || (0 < recent && recent <= kMaxRecent);
//   heads > 0; rank > 0; rank % 16 == 0; rank <= kMaxRank; rope > 0; rope % 8 == 0; rope <= kMaxRope;
//   context + tokens <= 2147483647; 0 < blocks; blocks <= 65535
// Numerics: f32, online softmax with one key at a time. NaN and inf reach only queries that see them.
kernel void mla_turbo_partials(
    device const float* q [[buffer(0)]],         // [tokens, heads, rank]
    device const float* q_rope [[buffer(1)]],    // [tokens, heads, rope]
    device const uint* packed [[buffer(2)]],     // [capacity, ceil_div(rank * bits, 32)]
    device const half* scales [[buffer(3)]],     // [capacity]
    device const half* rope_keys [[buffer(4)]],  // [capacity, rope]
    device const float* own [[buffer(5), function_constant(has_own)]],               // [tokens, rank]
    device const float* own_ropes [[buffer(6), function_constant(has_own)]],         // [tokens, rope]
    device const half* recent_latents [[buffer(7), function_constant(has_recent)]],  // [recent, rank]
    device const uint* recent_keys [[buffer(8), function_constant(has_recent)]],     // [recent]
    device float* o [[buffer(9)]],   // [tokens, heads, blocks, rank]
    device float* m [[buffer(10)]],  // [tokens, heads, blocks]
    device float* l [[buffer(11)]],  // [tokens, heads, blocks]
    constant uint& tokens [[buffer(12)]],
    constant uint& context [[buffer(13)]],
    constant uint& capacity [[buffer(14)]],
    constant uint& recent [[buffer(15)]],
    constant uint& heads [[buffer(16)]],
    constant uint& rank [[buffer(17)]],
    constant uint& rope [[buffer(18)]],
    constant uint& blocks [[buffer(19)]],
    constant float& scale [[buffer(20)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tile[kTileKeys * (kMaxRank + kMaxRope)];
  const uint width = rank + rope;
  const uint block = tg.y;
  const uint first = tg.x * kHeads + simd * kShared;
  const uint count = first < heads ? min(kShared, heads - first) : 0;
  const ulong row = ulong(tg.z) * heads + first;
  const uint end = make_mask(tokens, has_own ? context + tokens : context, 0, true).end(tg.z);
  const uint length = max(kFewestKeys, (end + blocks - 1) / blocks);
  const uint from = uint(min(ulong(block) * length, ulong(end)));
  const uint to = min(from + length, end);
  CompressedLatents rows = {packed,  scales,  rope_keys, nullptr, nullptr, nullptr,
                            context, context, 0,         rank,    rope};
  if (has_recent) {
    rows.recent = recent_latents;
    rows.exact = first_recent(recent_keys, recent, context, lane);
    rows.recent_rows = recent;
  }
  if (has_own) {
    rows.own = own;
    rows.own_ropes = own_ropes;
  }

  Share<kMaxRank> query[kShared], sum[kShared];
  Share<kMaxRope> turned[kShared];
  float top[kShared], total[kShared];
  for (uint h = 0; h < kShared; ++h) {
    if (h < count) {
      query[h].load(q + (row + h) * rank, rank, lane);
      turned[h].load(q_rope + (row + h) * rope, rope, lane);
    }
    for (uint i = 0; i < Share<kMaxRank>::kValues; ++i) sum[h].values[i] = 0.0f;
    top[h] = -INFINITY;
    total[h] = 0.0f;
  }

  for (uint begin = from; begin < to; begin += kTileKeys) {
    const uint keys = min(kTileKeys, to - begin);
    for (uint i = tid; i < keys * width / 4; i += kThreads) {
      const uint key = i * 4 / width;
      const uint column = i * 4 % width;
      const float4 x = rows.four(begin + key, column);
      for (uint c = 0; c < 4; ++c) tile[key * width + column + c] = x[c];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < keys; ++j) {
      Share<kMaxRank> latent;
      Share<kMaxRope> key;
      latent.load_floats((threadgroup const float*)tile + j * width, rank, lane);
      key.load_floats((threadgroup const float*)tile + j * width + rank, rope, lane);
      for (uint h = 0; h < kShared; ++h) {
        if (h >= count) continue;
        float dot = 0.0f;
        for (uint i = 0; i < Share<kMaxRank>::kValues; ++i)
          dot = fma(query[h].values[i], latent.values[i], dot);
        for (uint i = 0; i < Share<kMaxRope>::kValues; ++i)
          dot = fma(turned[h].values[i], key.values[i], dot);
        const float score = scale * simd_sum(dot);
        const float higher = max(top[h], score);
        const float kept = softmax_weight(top[h], higher);
        const float weight = softmax_weight(score, higher);
        total[h] = fma(total[h], kept, weight);
        top[h] = higher;
        for (uint i = 0; i < Share<kMaxRank>::kValues; ++i)
          sum[h].values[i] = fma(sum[h].values[i], kept, weight * latent.values[i]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  for (uint h = 0; h < kShared; ++h) {
    if (h >= count) continue;
    const ulong target = (row + h) * blocks + block;
    sum[h].store(o + target * rank, rank, lane);
    if (lane == 0) {
      m[target] = top[h];
      l[target] = total[h];
    }
  }
}
