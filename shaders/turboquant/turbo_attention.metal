// Attention over a compressed cache in one pass.
#include "attend.h"

constant bool has_sinks [[function_constant(4)]];

constexpr constant uint kThreads = 32 * kOnlineSimdgroups;

// y = sum_j p_j v_j over the keys a query sees, p = softmax(soft_cap(scale * q . k)), a sink one more logit of
// value 0, neither scaled nor capped. Rotated, from q to y. No visible key gives 0.
// Layout: keys, own rows and window as turbo_partials has them.
// Dispatch: groups (batch * kv_heads * ceil_div(heads / kv_heads, shared), tokens), threads (kThreads)
// Requires: key_bits == 2 || key_bits == 3 || key_bits == 4 || key_bits == 6 || key_bits == 8;
//   value_bits == 2 || value_bits == 3 || value_bits == 4 || value_bits == 6 || value_bits == 8;
//   batch > 0; tokens > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 16 == 0;
//   dim <= max_dim; softcap >= 0; context + tokens + window <= 2147483647; ring_start < capacity;
//   !has_recent || (0 < recent && recent <= kMaxRecent);
//   context <= capacity || (window > 0 && window + (has_own ? 0 : tokens) <= capacity + 1)
// Work: products (2 * batch * tokens * heads * dim *
//     (window > 0 ? min(context, window) + tokens : context + tokens)),
//   bytes (batch * kv_heads * dim * (key_bits + value_bits) / 8 *
//     (window > 0 ? min(context, window) + tokens : context + tokens))
// Numerics: f32, rounded once to the type of y. NaN and inf reach only queries that see them.
template <typename T, uint max_dim, uint shared>
kernel void turbo_attention(
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
    device const float* sinks [[buffer(13), function_constant(has_sinks)]],        // [heads]
    device T* y [[buffer(14)]],  // [batch, tokens, heads, dim]
    constant uint& batch [[buffer(15)]],
    constant uint& tokens [[buffer(16)]],
    constant uint& context [[buffer(17)]],
    constant uint& capacity [[buffer(18)]],
    constant uint& ring_start [[buffer(19)]],
    constant uint& recent [[buffer(20)]],
    constant uint& heads [[buffer(21)]],
    constant uint& kv_heads [[buffer(22)]],
    constant uint& dim [[buffer(23)]],
    constant float& scale [[buffer(24)]],
    constant uint& window [[buffer(25)]],
    constant float& softcap [[buffer(26)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[joined_floats<max_dim, shared>()], tables[2 * kTableFloats];
  load_tables(tables, tid);

  const uint group = heads / kv_heads;  // query heads of a key head, `shared` of them here
  const uint parts = (group + shared - 1) / shared;
  const uint head = tg.x / parts;  // of all sequences
  const uint first = head % kv_heads * group + tg.x % parts * shared;
  const uint count = min(shared, group - tg.x % parts * shared);
  const uint sequence = head / kv_heads;
  const ulong row = (ulong(sequence) * tokens + tg.y) * heads + first;

  const Mask mask = make_mask(tokens, has_own ? context + tokens : context, window, true);
  const uint begin = mask.begin(tg.y);
  const uint end = max(begin, mask.end(tg.y));
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

  Online<max_dim, shared> online =
      attend<max_dim, shared>(cache, tables, q + row * dim, count, begin, end, simd, lane);
  online.publish(memory, simd, lane);
#pragma unroll
  for (uint h = 0; h < shared; ++h) {
    if (h >= count) continue;
    const float2 joined = online.join(h, memory, dim, simd, lane);
    const float inverse = normalizer(joined.x, joined.y, has_sinks ? sinks[first + h] : -INFINITY);
    for (uint i = tid; i < dim; i += kThreads) y[(row + h) * dim + i] = T(online.joined(memory, i) * inverse);
  }
}

INSTANTIATE_ATTENTION(turbo_attention, 64, 8)
INSTANTIATE_ATTENTION(turbo_attention, 128, 4)
INSTANTIATE_ATTENTION(turbo_attention, 256, 4)
INSTANTIATE_ATTENTION(turbo_attention, 512, 2)
