// Attention over a compressed cache, first half: keys split over threadgroups, merged by turbo_merge.
#include "block.h"

// Of each of `blocks` parts of the keys a query sees (window counts its own): m the largest score soft_cap(scale * q . k),
// l = sum e^(score - m), o = sum e^(score - m) * v; no keys: m = -inf, l = o = 0. Rotated, from q to o.
// Layout: key j < context in row (ring_start + j) % capacity, or in exact row j % recent if recent_keys has it and all
//   after it; with has_own key context + i is own row i and query t stands at key context + t, else the last one at the last.
// Dispatch: groups (batch * kv_heads * ceil_div(heads / kv_heads, shared), blocks, tokens),
//   threads (32 * kOnlineSimdgroups)
// Requires: key_bits == 2 || key_bits == 3 || key_bits == 4 || key_bits == 6 || key_bits == 8;
//   value_bits == 2 || value_bits == 3 || value_bits == 4 || value_bits == 6 || value_bits == 8;
//   batch > 0; tokens > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 16 == 0;
//   dim <= max_dim; softcap >= 0; context + tokens + window <= 2147483647; 0 < blocks;
//   blocks <= 65536; ring_start < capacity;
//   !has_recent || (0 < recent && recent <= kMaxRecent);
//   context <= capacity || (window > 0 && window + (has_own ? 0 : tokens) <= capacity + 1)
// Work: products (2 * batch * tokens * heads * dim *
//     (window > 0 ? min(context, window) + tokens : context + tokens)),
//   bytes (batch * kv_heads * dim * (key_bits + value_bits) / 8 *
//     (window > 0 ? min(context, window) + tokens : context + tokens))
// Numerics: f32, online softmax with some keys at a time; on NVIDIA's matrix units q, own rows and e^(score - m) have 22
//   bits. NaN and inf reach only queries that see them.
template <typename T, uint max_dim, uint shared>
kernel void turbo_partials(
    device const T* q [[buffer(0)]],            // [batch, tokens, heads, dim]
    device const uint* k_packed [[buffer(1)]],  // [batch, kv_heads, capacity, ceil_div(dim * key_bits, 32)]
    device const half* k_scales [[buffer(2)]],  // [batch, kv_heads, capacity]
    device const uint* v_packed [[buffer(3)]],  // [batch, kv_heads, capacity, ceil_div(dim * value_bits, 32)]
    device const half* v_scales [[buffer(4)]],  // [batch, kv_heads, capacity]
    device const half* k_means [[buffer(5), function_constant(has_means)]],  // [batch, kv_heads, capacity]
    device const half* v_means [[buffer(6), function_constant(has_means)]],  // [batch, kv_heads, capacity]
    device const float* ones [[buffer(7), function_constant(has_means)]],    // [dim]
    device const float* own_k [[buffer(8), function_constant(has_own)]],     // [batch, tokens, kv_heads, dim]
    device const float* own_v [[buffer(9), function_constant(has_own)]],     // [batch, tokens, kv_heads, dim]
    device const half* k_recent
    [[buffer(10), function_constant(has_recent)]],  // [batch, kv_heads, recent, dim]
    device const half* v_recent
    [[buffer(11), function_constant(has_recent)]],  // [batch, kv_heads, recent, dim]
    device const uint* recent_keys [[buffer(12), function_constant(has_recent)]],  // [recent]
    device float* o [[buffer(13)]],  // [batch, tokens, heads, blocks, dim]
    device float* m [[buffer(14)]],  // [batch, tokens, heads, blocks]
    device float* l [[buffer(15)]],  // [batch, tokens, heads, blocks]
    constant uint& batch [[buffer(16)]],
    constant uint& tokens [[buffer(17)]],
    constant uint& context [[buffer(18)]],
    constant uint& capacity [[buffer(19)]],
    constant uint& ring_start [[buffer(20)]],
    constant uint& recent [[buffer(21)]],
    constant uint& heads [[buffer(22)]],
    constant uint& kv_heads [[buffer(23)]],
    constant uint& dim [[buffer(24)]],
    constant uint& blocks [[buffer(25)]],
    constant float& scale [[buffer(26)]],
    constant uint& window [[buffer(27)]],
    constant float& softcap [[buffer(28)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[block_floats<max_dim, shared>()];

  const uint group = heads / kv_heads;  // query heads of a key head, `shared` of them here
  const uint parts = (group + shared - 1) / shared;
  const uint head = tg.x / parts;  // of all sequences
  const uint part = tg.x % parts;
  const uint sequence = head / kv_heads;
  const ulong row = (ulong(sequence) * tokens + tg.z) * heads + head % kv_heads * group;

  const Mask mask = make_mask(tokens, has_own ? context + tokens : context, window, true);
  const uint begin = mask.begin(tg.z);
  const uint end = max(begin, mask.end(tg.z));
  const uint length = max(kFewestKeys, (end - begin + blocks - 1) / blocks);
  const uint from = min(begin + tg.y * length, end);
  if (from == end) {
    const ulong target = (row + part * shared) * blocks + tg.y;
    const uint count = min(shared, group - part * shared);
    return write_no_keys(o, m, l, target, count, blocks, dim, simd * 32 + lane);
  }

  const ulong row_0 = ulong(head) * capacity;
  const ulong own_0 = (ulong(sequence) * tokens * kv_heads + head % kv_heads) * dim;
  const ulong recent_0 = has_recent ? ulong(head) * recent * dim : 0;
  const TurboCache cache = {
      turbo_head(
          k_packed, k_scales, k_means, own_k, k_recent, row_0, row_words(dim, key_bits), own_0, recent_0),
      turbo_head(
          v_packed, v_scales, v_means, own_v, v_recent, row_0, row_words(dim, value_bits), own_0, recent_0),
      ones,
      ulong(kv_heads) * dim,
      context,
      has_recent ? first_recent(recent_keys, recent, context, lane) : context,
      recent,
      ring_from(ring_start, begin, capacity),
      dim,
      scale,
      softcap};

  const ulong place = row * blocks + tg.y;
  attend_codes<max_dim, shared>(
      q + row * dim, cache, from, min(from + length, end), group, part,
      BlockSums{o + place * dim, m + place, l + place, blocks}, memory, simd, lane);
}

INSTANTIATE_ATTENTION(turbo_partials, 64, 8)
INSTANTIATE_ATTENTION(turbo_partials, 128, 4)
INSTANTIATE_ATTENTION(turbo_partials, 256, 4)
INSTANTIATE_ATTENTION(turbo_partials, 512, 2)
