// Attention for prefill over a compressed cache: a chunk of queries over the rows encoded before it, then over
// its own keys and values, which are exact.
#include "../attention/tiled.h"
#include "ring.h"

constant uint key_bits [[function_constant(0)]];
constant uint value_bits [[function_constant(1)]];
constant bool has_means [[function_constant(2)]];
constant bool has_own [[function_constant(3)]];
constant bool has_sinks [[function_constant(4)]];
constant bool has_recent [[function_constant(5)]];

// The keys or the values of one key head of a sequence.
struct TurboSource {
  device const uint* packed;  // [capacity, words]
  device const half* scales;  // [capacity]
  device const half* means;   // [capacity], with has_means
  device const float* ones;   // [dim], with has_means
  device const float* own;    // row i at i * own_stride, with has_own
  device const half* recent;  // [recent_rows, dim], with has_recent
  ulong own_stride;
  uint bits;
  uint context;
  uint exact;  // keys from here on, at most context, have exact rows
  uint recent_rows;
  Ring ring;
  uint dim;

  bool load(KeyRange keys, uint column, uint tid, threadgroup float* tile) const {
    constant float* table = centroids(bits);
    bool finite = true;
    for (uint i = tid; i < kKeys * kChunk / 4; i += kThreads) {
      const uint key = i / (kChunk / 4);
      const uint at = i % (kChunk / 4) * 4;
      float4 x = 0;
      if (keys.first + key < keys.end && column + at < dim) x = four(table, keys.first + key, column + at);
      for (uint c = 0; c < 4; ++c) tile[key * kChunkStride + at + c] = x[c];
      finite = finite && all(isfinite(x));
    }
    return finite;
  }

  float4 four(constant float* table, uint key, uint column) const {
    if (has_own && key >= context)
      return *(device const float4*)(own + (key - context) * own_stride + column);
    if (has_recent && key >= exact)
      return float4(*(device const half4*)(recent + ulong(key % recent_rows) * dim + column));
    const uint row = ring.row(key);
    const uint run = code_run(packed + ulong(row) * row_words(dim, bits), column, 4, bits);
    const float factor = float(scales[row]);
    float4 x;
    for (uint c = 0; c < 4; ++c) x[c] = table[code_at(run, c, bits)] * factor;
    if (has_means) {
      for (uint c = 0; c < 4; ++c) x[c] = fma(float(means[row]), ones[column + c], x[c]);
    }
    return x;
  }
};

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
// Numerics: f32, online softmax; no visible key gives 0. NaN and inf reach only queries that see them.
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
  threadgroup float queries[rows * (max_dim + kPad)];
  threadgroup float tile[kKeys * kChunkStride];
  threadgroup float weights[rows * kWeightStride];
  threadgroup float factors[rows * kBlock];
  threadgroup float scratch[kSimdgroups * kBlock * kBlock];
  threadgroup bool finite[kSimdgroups];

  const uint group = heads / kv_heads;
  const uint sequence = tg.y / kv_heads;
  const uint kv_head = tg.y % kv_heads;
  const uint first = tg.x * rows;
  const TileRows own = {first, min(rows, tokens * group - first), group, heads, ulong(kv_head) * group};
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
  load_queries<rows>(q + chunk, dim, own, queries, max_dim + kPad, 0, tid);
  attend_tiles<max_dim, rows>(
      keys, values, own, mask, dim, dim, scale, softcap, has_sinks ? sinks : nullptr, y + chunk,
      TileMemory{queries, tile, weights, factors, scratch, finite}, tid, lane, simd);
}

#define INSTANTIATE_PREFILL(max_dim, rows)                                                         \
  template [[host_name("turbo_prefill_d" #max_dim)]] kernel decltype(turbo_prefill<max_dim, rows>) \
      turbo_prefill<max_dim, rows>;
INSTANTIATE_PREFILL(64, 32)
INSTANTIATE_PREFILL(128, 32)
INSTANTIATE_PREFILL(256, 16)
INSTANTIATE_PREFILL(512, 8)
