// Attention for decode, first half: the keys of each query split over simdgroups, merged by attention_merge.
#include "attention.h"
#include "share.h"

constant bool causal [[function_constant(0)]];

constexpr constant uint kSimdgroups = 4;   // of a threadgroup; each takes one block
constexpr constant uint kFewestKeys = 16;  // of a block, except the last one that has any

// The keys that a query sees are cut in order into blocks. Of each, m is the largest score
// soft_cap(scale * q . k), l = sum e^(score - m), o = sum e^(score - m) * v; no keys: m = -inf, l = o = 0.
// Layout: key j in cache row j % capacity, the queries' own rows included; window counts the query's own key.
// Dispatch: groups (kv_heads * ceil_div(heads / kv_heads, shared), ceil_div(blocks, kSimdgroups), tokens),
//   threads (32 * kSimdgroups)
// Requires: tokens > 0; context > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 8 == 0;
//   dim <= max_dim; softcap >= 0; causal || window == 0; context + tokens + window <= 2147483647;
//   0 < blocks; blocks <= 65536; context <= capacity || (window > 0 && window + tokens - 1 <= capacity)
// Numerics: f32, online softmax with one key at a time. NaN and inf reach only queries that see them.
template <typename T, uint max_dim, uint shared>
kernel void attention_partials(
    device const float* q [[buffer(0)]],  // [tokens, heads, dim]
    device const T* k [[buffer(1)]],      // [capacity, kv_heads, dim]
    device const T* v [[buffer(2)]],      // [capacity, kv_heads, dim]
    device float* o [[buffer(3)]],        // [tokens, heads, blocks, dim]
    device float* m [[buffer(4)]],        // [tokens, heads, blocks]
    device float* l [[buffer(5)]],        // [tokens, heads, blocks]
    constant uint& tokens [[buffer(6)]],
    constant uint& context [[buffer(7)]],
    constant uint& capacity [[buffer(8)]],
    constant uint& heads [[buffer(9)]],
    constant uint& kv_heads [[buffer(10)]],
    constant uint& dim [[buffer(11)]],
    constant uint& blocks [[buffer(12)]],
    constant float& scale [[buffer(13)]],
    constant uint& window [[buffer(14)]],
    constant float& softcap [[buffer(15)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint block = tg.y * kSimdgroups + simd;
  if (block >= blocks) return;

  const uint group = heads / kv_heads;  // query heads of a key head, `shared` of them here
  const uint parts = (group + shared - 1) / shared;
  const uint kv_head = tg.x / parts;
  const uint first = tg.x % parts * shared;
  const uint count = min(shared, group - first);
  const ulong row = ulong(tg.z) * heads + kv_head * group + first;

  const Mask mask = make_mask(tokens, context, window, causal);
  const uint begin = mask.begin(tg.z);
  const uint end = max(begin, mask.end(tg.z));
  const uint length = max(kFewestKeys, (end - begin + blocks - 1) / blocks);
  const uint from = min(begin + block * length, end);
  const uint to = min(from + length, end);
  const Ring ring = make_ring(begin, capacity);

  Share<max_dim> query[shared], sum[shared];
  float top[shared], total[shared], weight[shared], kept[shared];
  for (uint h = 0; h < shared; ++h) {
    if (h < count) query[h].load(q + (row + h) * dim, dim, lane);
    for (uint i = 0; i < Share<max_dim>::kValues; ++i) sum[h].values[i] = 0.0f;
    top[h] = -INFINITY;
    total[h] = 0.0f;
  }

  for (uint j = from; j < to; ++j) {
    const ulong at = (ulong(ring.row(j)) * kv_heads + kv_head) * dim;
    Share<max_dim> own;
    own.load(k + at, dim, lane);
    for (uint h = 0; h < shared; ++h) {
      if (h >= count) continue;
      float dot = 0.0f;
      for (uint i = 0; i < Share<max_dim>::kValues; ++i) dot = fma(query[h].values[i], own.values[i], dot);
      const float score = soft_cap(scale * simd_sum(dot), softcap);
      const float higher = max(top[h], score);
      kept[h] = softmax_weight(top[h], higher);
      weight[h] = softmax_weight(score, higher);
      total[h] = fma(total[h], kept[h], weight[h]);
      top[h] = higher;
    }
    own.load(v + at, dim, lane);
    for (uint h = 0; h < shared; ++h) {
      if (h >= count) continue;
      for (uint i = 0; i < Share<max_dim>::kValues; ++i)
        sum[h].values[i] = fma(sum[h].values[i], kept[h], weight[h] * own.values[i]);
    }
  }

  for (uint h = 0; h < shared; ++h) {
    if (h >= count) continue;
    const ulong target = (row + h) * blocks + block;
    sum[h].store(o + target * dim, dim, lane);
    if (lane == 0) {
      m[target] = top[h];
      l[target] = total[h];
    }
  }
}

INSTANTIATE_ATTENTION(attention_partials, 64, 8)
INSTANTIATE_ATTENTION(attention_partials, 128, 8)
INSTANTIATE_ATTENTION(attention_partials, 256, 4)
INSTANTIATE_ATTENTION(attention_partials, 512, 2)
