// Weighted values of a compressed cache: last of the three steps scores, softmax, values.
#include "codec.h"

constant uint bits [[function_constant(0)]];
constant bool has_means [[function_constant(1)]];

constexpr constant uint kThreads = 64;
constexpr constant uint kShared = 8;  // query heads of a key head that unpack a row together

// y[t, a] = sum_j p[t, a, j] * v[j, a / (heads / kv_heads)] over the keys with p >= threshold; a threshold of 0
// or less takes all of them, and a NaN is never left out. y is rotated.
// Layout: key j in row (ring_start + j) % capacity.
// Dispatch: groups (ceil_div(dim, kThreads), batch * kv_heads * ceil_div(heads / kv_heads, kShared), tokens),
//   threads (kThreads)
// Requires: bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8; batch > 0; tokens > 0; kv_heads > 0;
//   heads > 0; heads % kv_heads == 0; dim > 0; dim % 16 == 0; dim <= kMaxDim;
//   context <= capacity; ring_start < capacity
// Work: products (batch * tokens * heads * context * dim),
//   bytes (batch * context * (kv_heads * dim * bits / 8 + tokens * heads * 4))
// Numerics: f32 fma, keys ascending, rounded once; a scale that is not finite shows even where p is 0.
template <typename T>
kernel void turbo_values(
    device const T* p [[buffer(0)]],            // [batch, tokens, heads, context]
    device const uint* v_packed [[buffer(1)]],  // [batch, kv_heads, capacity, ceil_div(dim * bits, 32)]
    device const half* v_scales [[buffer(2)]],  // [batch, kv_heads, capacity]
    device const half* v_means [[buffer(3), function_constant(has_means)]],  // [batch, kv_heads, capacity]
    device const float* ones [[buffer(4), function_constant(has_means)]],    // [dim]
    device T* y [[buffer(5)]],                                               // [batch, tokens, heads, dim]
    constant uint& batch [[buffer(6)]],
    constant uint& tokens [[buffer(7)]],
    constant uint& context [[buffer(8)]],
    constant uint& capacity [[buffer(9)]],
    constant uint& ring_start [[buffer(10)]],
    constant uint& heads [[buffer(11)]],
    constant uint& kv_heads [[buffer(12)]],
    constant uint& dim [[buffer(13)]],
    constant float& threshold [[buffer(14)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;
  const uint group = heads / kv_heads;
  const uint parts = (group + kShared - 1) / kShared;
  const uint head = tg.y / parts;  // of all sequences
  const uint first = tg.y % parts * kShared;
  const uint count = min(kShared, group - first);
  const ulong row = (ulong(head / kv_heads) * tokens + tg.z) * heads + head % kv_heads * group + first;

  float sum[kShared];
  for (uint h = 0; h < kShared; ++h) sum[h] = 0.0f;
  for (uint key = 0; key < context; ++key) {
    const ulong slot = ulong(head) * capacity + ring_row(ring_start, key, capacity);
    const uint code = code_at(code_run(v_packed + slot * row_words(dim, bits), i, 1, bits), 0, bits);
    float value = centroid(code, bits) * float(v_scales[slot]);
    if (has_means) value = fma(float(v_means[slot]), ones[i], value);
    for (uint h = 0; h < count; ++h) {
      const float weight = float(p[(row + h) * context + key]);
      if (threshold > 0.0f && weight < threshold) continue;
      sum[h] = fma(weight, value, sum[h]);
    }
  }
  for (uint h = 0; h < count; ++h) y[(row + h) * dim + i] = T(sum[h]);
}

template [[host_name("turbo_values_f32")]] kernel decltype(turbo_values<float>) turbo_values<float>;
template [[host_name("turbo_values_f16")]] kernel decltype(turbo_values<half>) turbo_values<half>;
template [[host_name("turbo_values_bf16")]] kernel decltype(turbo_values<bfloat>) turbo_values<bfloat>;
