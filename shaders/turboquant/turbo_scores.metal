// Scores of queries with the keys of a compressed cache: first of the three steps scores, softmax, values.
#include "attend.h"

constexpr constant uint kSimdgroups = 4;  // of a threadgroup
constexpr constant uint kKeys = 8;        // of a simdgroup

// scores[t, a, j] = soft_cap(scale * q[t, a] . k[j, a / (heads / kv_heads)]), -inf for a key that query t does
// not see: one past its own, which is key context - tokens + t, or before its window. Queries are rotated.
// Layout: key j in row (ring_start + j) % capacity.
// Dispatch: groups (ceil_div(context, kSimdgroups * kKeys), batch * kv_heads, tokens),
//   threads (32 * kSimdgroups)
// Requires: key_bits == 2 || key_bits == 3 || key_bits == 4 || key_bits == 6 || key_bits == 8;
//   batch > 0; tokens > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 16 == 0;
//   dim <= kMaxDim; softcap >= 0; 0 < context; context <= capacity; ring_start < capacity;
//   context + tokens + window <= 2147483647
// Work: products (batch * tokens * heads * context * dim),
//   bytes (batch * context * (kv_heads * dim * key_bits / 8 + tokens * heads * 4))
// Numerics: f32; NaN and inf reach only scores of their query or key.
template <typename T>
kernel void turbo_scores(
    device const T* q [[buffer(0)]],            // [batch, tokens, heads, dim]
    device const uint* k_packed [[buffer(1)]],  // [batch, kv_heads, capacity, ceil_div(dim * key_bits, 32)]
    device const half* k_scales [[buffer(2)]],  // [batch, kv_heads, capacity]
    device const half* k_means [[buffer(3), function_constant(has_means)]],  // [batch, kv_heads, capacity]
    device const float* ones [[buffer(4), function_constant(has_means)]],    // [dim]
    device float* scores [[buffer(5)]],  // [batch, tokens, heads, context]
    constant uint& batch [[buffer(6)]],
    constant uint& tokens [[buffer(7)]],
    constant uint& context [[buffer(8)]],
    constant uint& capacity [[buffer(9)]],
    constant uint& ring_start [[buffer(10)]],
    constant uint& heads [[buffer(11)]],
    constant uint& kv_heads [[buffer(12)]],
    constant uint& dim [[buffer(13)]],
    constant float& scale [[buffer(14)]],
    constant uint& window [[buffer(15)]],
    constant float& softcap [[buffer(16)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint group = heads / kv_heads;
  const ulong row = (ulong(tg.y / kv_heads) * tokens + tg.z) * heads + tg.y % kv_heads * group;
  const Mask mask = make_mask(tokens, context, window, true);
  const uint first = (tg.x * kSimdgroups + simd) * kKeys;
  const uint words = row_words(dim, key_bits);
  for (uint key = first; key < min(first + kKeys, context); ++key) {
    const ulong slot = ulong(tg.y) * capacity + ring_row(ring_start, key, capacity);
    Share<kMaxDim> k = load_centroids<kMaxDim>(k_packed + slot * words, key_bits, dim, lane);
    const float factor = float(k_scales[slot]);
    Share<kMaxDim> offsets;
    if (has_means) offsets.load(ones, dim, lane);
#pragma unroll
    for (uint i = 0; i < Share<kMaxDim>::kValues; ++i) {
      k.values[i] *= factor;
      if (has_means) k.values[i] = fma(float(k_means[slot]), offsets.values[i], k.values[i]);
    }
    for (uint h = 0; h < group; ++h) {
      Share<kMaxDim> query;
      query.load(q + (row + h) * dim, dim, lane);
      float sum = 0.0f;
#pragma unroll
      for (uint i = 0; i < Share<kMaxDim>::kValues; ++i) sum = fma(query.values[i], k.values[i], sum);
      const float score = soft_cap(scale * simd_sum(sum), softcap);
      if (lane == 0) scores[(row + h) * context + key] = mask.visible(tg.z, key) ? score : -INFINITY;
    }
  }
}

template [[host_name("turbo_scores_f32")]] kernel decltype(turbo_scores<float>) turbo_scores<float>;
template [[host_name("turbo_scores_f16")]] kernel decltype(turbo_scores<half>) turbo_scores<half>;
template [[host_name("turbo_scores_bf16")]] kernel decltype(turbo_scores<bfloat>) turbo_scores<bfloat>;
