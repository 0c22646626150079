// Attention for prefill over a compressed cache: a chunk of queries over the rows encoded before it, then over
// its own keys and values, which are exact.
#include "code_tiles.h"

constant bool has_sinks [[function_constant(4)]];

// y = sum_j p_j v_j over the keys a query sees, p = softmax(soft_cap(scale * q . k)), a sink one more logit.
// Rotated, from q to y.
// Layout: keys, own rows and window as turbo_partials has them.
// Dispatch: groups (ceil_div(tokens * (heads / kv_heads), rows), batch * kv_heads), threads (kThreads)
// Requires: key_bits == 2 || key_bits == 3 || key_bits == 4 || key_bits == 6 || key_bits == 8;
//   value_bits == 2 || value_bits == 3 || value_bits == 4 || value_bits == 6 || value_bits == 8;
//   batch > 0; tokens > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 16 == 0;
//   dim <= max_dim; softcap >= 0; context + tokens + window <= 2147483647; tokens * heads <= 2147483647;
//   ring_start < capacity;
//   !has_recent || (0 < recent && recent <= kMaxRecent);
//   context <= capacity || (window > 0 && window + (has_own ? 0 : tokens) <= capacity + 1)
// Work: products (2 * batch * tokens * heads * dim *
//     (window > 0 ? min(context, window) + tokens : context + tokens)),
//   bytes (batch * kv_heads * dim * (key_bits + value_bits) / 8 *
//     (window > 0 ? min(context, window) + tokens : context + tokens))
// Numerics: f32, online softmax; on NVIDIA's matrix units q, p and exact rows have 22 bits. No visible key gives 0. NaN and
//   inf reach only queries that see them.
template <uint max_dim, uint rows>
kernel void turbo_prefill(
    device const float* q [[buffer(0)]],        // [batch, tokens, heads, dim]
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
    device float* y [[buffer(14)]],  // [batch, tokens, heads, dim]
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
  threadgroup float4 tile[kTileFloats / 4];
  threadgroup bool finite[kSimdgroups];

  const uint group = heads / kv_heads;
  const uint sequence = tg.y / kv_heads;
  const uint kv_head = tg.y % kv_heads;
  constexpr uint kOwnRows = coded_rows<max_dim, rows>();
  const uint first = tg.x * kOwnRows;
  const TileRows own = {first, min(kOwnRows, tokens * group - first), group, heads, ulong(kv_head) * group};
  const Mask mask = make_mask(tokens, has_own ? context + tokens : context, window, true);

  const ulong row_0 = ulong(tg.y) * capacity;
  const ulong stride = ulong(kv_heads) * dim;
  const ulong own_0 = ulong(sequence) * tokens * stride + ulong(kv_head) * dim;
  TurboSource keys = {
      k_packed + row_0 * row_words(dim, key_bits),
      k_scales + row_0,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      stride,
      key_bits,
      context,
      has_recent ? first_recent(recent_keys, recent, context, lane) : context,
      recent,
      ring_from(ring_start, mask.begin(own.query(0)), capacity),
      dim};
  TurboSource values = keys;
  values.packed = v_packed + row_0 * row_words(dim, value_bits);
  values.scales = v_scales + row_0;
  values.bits = value_bits;
  if (has_means) {
    keys.means = k_means + row_0;
    values.means = v_means + row_0;
    keys.ones = values.ones = ones;
  }
  if (has_own) {
    keys.own = own_k + own_0;
    values.own = own_v + own_0;
  }
  if (has_recent) {
    keys.recent = k_recent + ulong(tg.y) * recent * dim;
    values.recent = v_recent + ulong(tg.y) * recent * dim;
  }
  const ulong chunk = ulong(sequence) * tokens * heads * dim;
  attend_coded<max_dim, rows>(
      q + chunk, keys, values, own, mask, scale, softcap, has_sinks ? sinks : nullptr, y + chunk,
      TileMemory{tile, finite}, tid, lane, simd);
}

#define INSTANTIATE_PREFILL(max_dim, rows)                                                         \
  template [[host_name("turbo_prefill_d" #max_dim)]] kernel decltype(turbo_prefill<max_dim, rows>) \
      turbo_prefill<max_dim, rows>;
INSTANTIATE_PREFILL(64, 32)
INSTANTIATE_PREFILL(128, 32)
INSTANTIATE_PREFILL(256, 16)
INSTANTIATE_PREFILL(512, 8)
