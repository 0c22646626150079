// Attention for decode, first half: the keys of each query are split over threadgroups, and merged by
// attention_merge.
#include "block.h"

constant bool causal [[function_constant(0)]];

constexpr constant uint kFewestKeys = 64;  // of a block, except the last one that has any

// The keys that a query sees are cut in order into blocks. Of each, m is the largest score
// soft_cap(scale * q . k), l = sum e^(score - m), o = sum e^(score - m) * v; no keys: m = -inf, l = o = 0.
// Layout: key j in cache row j % capacity, the queries' own rows included; window counts the query's own key.
// Dispatch: groups (kv_heads * ceil_div(heads / kv_heads, shared), blocks, tokens),
//   threads (32 * kOnlineSimdgroups)
// Requires: tokens > 0; context > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 8 == 0;
//   dim <= max_dim; softcap >= 0; causal || window == 0; context + tokens + window <= 2147483647;
//   0 < blocks; blocks <= 65536; context <= capacity || (window > 0 && window + tokens - 1 <= capacity)
// Work: products (2 * tokens * heads * dim * (window > 0 ? min(context, window + tokens) : context)),
//   bytes (2 * kv_heads * dim * sizeof(T) * (window > 0 ? min(context, window + tokens) : context))
// Numerics: f32, online softmax with some keys at a time; on NVIDIA's matrix units q and e^(score - m) have 22 bits
//   beside f16 and 17 beside bf16. NaN and inf reach only queries that see them.
template <typename T, uint max_dim, uint shared>
kernel void attention_partials(
    device const float* q [[buffer(0)]],  // [tokens, heads, dim] aligned 16
    device const T* k [[buffer(1)]],      // [capacity, kv_heads, dim] aligned 16
    device const T* v [[buffer(2)]],      // [capacity, kv_heads, dim] aligned 16
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
  threadgroup float memory[joined_floats<max_dim, shared>()];

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
  const uint from = min(begin + tg.y * length, end);
  const uint to = min(from + length, end);
  if (from == to) return write_no_keys(o, m, l, row * blocks + tg.y, count, blocks, dim, simd * 32 + lane);
  const ulong first_row = ulong(tg.z) * heads + kv_head * group;
  const ulong head = ulong(kv_head) * dim;
  const KeyBlock<T> keys = {
      k + head, v + head, ulong(kv_heads) * dim, make_ring(begin, capacity), from, to, dim, scale, softcap};
  const ulong place = first_row * blocks + tg.y;
  attend_block<max_dim, shared>(
      q + first_row * dim, keys, group, tg.x % parts,
      BlockSums{o + place * dim, m + place, l + place, blocks}, memory, simd, lane);
}

INSTANTIATE_ATTENTION(attention_partials, 64, 8)
INSTANTIATE_ATTENTION(attention_partials, 128, 4)
INSTANTIATE_ATTENTION(attention_partials, 256, 4)
INSTANTIATE_ATTENTION(attention_partials, 512, 2)
