// Attention for prefill: a chunk of queries over the cache, in tiles of simdgroup matrices.
#include "cache_tiles.h"

constant bool causal [[function_constant(0)]];
constant bool has_sinks [[function_constant(1)]];

// y = sum_j p_j v_j over the keys a query sees, p = softmax(soft_cap(scale * q . k)), a sink one more logit.
// Layout: key j in cache row j % capacity, the queries' own rows included; window counts the query's own key.
// Dispatch: groups (ceil_div(tokens * (heads / kv_heads), rows), kv_heads), threads (kThreads)
// Requires: tokens > 0; context > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 8 == 0;
//   dim <= max_dim; softcap >= 0; causal || window == 0; context + tokens + window <= 2147483647;
//   tokens * heads <= 2147483647; context <= capacity || (window > 0 && window + tokens - 1 <= capacity)
// Work: products (2 * tokens * heads * dim * (window > 0 ? min(context, window + tokens) : context)),
//   bytes (2 * kv_heads * dim * sizeof(T) * (window > 0 ? min(context, window + tokens) : context))
// Numerics: f32, online softmax; on NVIDIA's matrix units q and p have 22 bits beside f16 and 17 beside bf16. No visible
//   key gives 0. NaN and inf reach only queries that see them.
template <typename T, uint max_dim, uint rows>
kernel void attention(
    device const float* q [[buffer(0)]],  // [tokens, heads, dim]
    device const T* k [[buffer(1)]],      // [capacity, kv_heads, dim] aligned 16
    device const T* v [[buffer(2)]],      // [capacity, kv_heads, dim] aligned 16
    device const float* sinks [[buffer(3), function_constant(has_sinks)]],  // [heads]
    device float* y [[buffer(4)]],                                          // [tokens, heads, dim]
    constant uint& tokens [[buffer(5)]],
    constant uint& context [[buffer(6)]],
    constant uint& capacity [[buffer(7)]],
    constant uint& heads [[buffer(8)]],
    constant uint& kv_heads [[buffer(9)]],
    constant uint& dim [[buffer(10)]],
    constant float& scale [[buffer(11)]],
    constant uint& window [[buffer(12)]],
    constant float& softcap [[buffer(13)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 tile[kTileFloats / 4];
  threadgroup bool finite[kSimdgroups];

  const uint group = heads / kv_heads;
  constexpr uint kOwnRows = attended_rows<T, max_dim, rows>();
  const uint first = tg.x * kOwnRows;
  const TileRows own = {first, min(kOwnRows, tokens * group - first), group, heads, ulong(tg.y) * group};
  const Mask mask = make_mask(tokens, context, window, causal);
  const Ring ring = make_ring(mask.begin(own.query(0)), capacity);
  const ulong stride = ulong(kv_heads) * dim;
  const CacheSource<T> keys = {ring, k + ulong(tg.y) * dim, stride, dim};
  const CacheSource<T> values = {ring, v + ulong(tg.y) * dim, stride, dim};
  attend_cache<max_dim, rows>(
      q, keys, values, own, mask, scale, softcap, has_sinks ? sinks : nullptr, y, TileMemory{tile, finite},
      tid, lane, simd);
}

INSTANTIATE_ATTENTION(attention, 64, 32)
INSTANTIATE_ATTENTION(attention, 128, 32)
INSTANTIATE_ATTENTION(attention, 256, 16)
INSTANTIATE_ATTENTION(attention, 512, 8)
