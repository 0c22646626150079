// Query and key heads of attention from their projections: norm, rotary embedding, and new rows of the cache.
#include "../norm/inverse_norm.h"
#include "turn.h"

constant bool interleaved [[function_constant(0)]];
constant bool has_norms [[function_constant(1)]];
constant bool appends [[function_constant(2)]];  // keys and values go to caches, not keys alone to k_out

constexpr constant uint kHeads = 4;  // heads of one threadgroup, one per simdgroup

struct Rotation {
  device const float* inv_freq;
  uint pairs;
  uint position;
  float scale;
};

// Value i of a head, normalised if heads are.
inline float normed(device const float* x, device const float* weight, float inverse, uint i) {
  return has_norms ? x[i] * inverse * weight[i] : x[i];
}

// y = the head x, normalised and rotated.
template <typename Y>
inline void rotate_head(
    device const float* x,
    device const float* weight,
    Rotation rotation,
    device Y* y,
    uint dim,
    float eps,
    uint lane) {
  float inverse = 1.0f;
  if (has_norms) inverse = inverse_norm(x, dim, float(dim), eps, SimdgroupRow{lane, 32});
  for (uint i = lane; i < dim - rotation.pairs; i += 32) {  // a pair, or past them one value to copy
    if (i >= rotation.pairs) {
      y[rotation.pairs + i] = Y(normed(x, weight, inverse, rotation.pairs + i));
      continue;
    }
    const float2 turn = turn_of(rotation.position, rotation.inv_freq[i], rotation.scale);
    const uint a = interleaved ? 2 * i : i;
    const uint b = interleaved ? 2 * i + 1 : i + rotation.pairs;
    const float va = normed(x, weight, inverse, a);
    const float vb = normed(x, weight, inverse, b);
    y[a] = Y(va * turn.x - vb * turn.y);
    y[b] = Y(vb * turn.x + va * turn.y);
  }
}

// head_rms_norm and rope of q and k, then kv_append of k and v; without caches, k_out[t] = the key of token t.
// Layout: a query is the first dim of q_stride values; cache rows as for kv_append; q_out overlaps no input.
// Dispatch: groups (ceil_div(heads + 2 * kv_heads, kHeads), tokens), threads (32 * kHeads)
// Requires: tokens > 0; heads > 0; kv_heads > 0; pairs > 0; 2 * pairs <= dim; q_stride >= dim;
//   tokens <= capacity; position + tokens <= 4294967296; eps >= 0
// Work: bytes (tokens * (heads + 2 * kv_heads) * max(dim, q_stride) * 8)
// Numerics: as these kernels; keys and values are rounded once to the type of the cache.
template <typename T>
kernel void rope_append(
    device const float* q [[buffer(0)]],                                       // [tokens, heads, q_stride]
    device const float* k [[buffer(1)]],                                       // [tokens, kv_heads, dim]
    device const float* v [[buffer(2), function_constant(appends)]],           // [tokens, kv_heads, dim]
    device const float* q_weight [[buffer(3), function_constant(has_norms)]],  // [dim]
    device const float* k_weight [[buffer(4), function_constant(has_norms)]],  // [dim]
    device const float* inv_freq [[buffer(5)]],                                // [pairs]
    device float* q_out [[buffer(6)]],                                         // [tokens, heads, dim]
    device T* k_out [[buffer(7)]],                                             // [capacity, kv_heads, dim]
    device T* v_out [[buffer(8), function_constant(appends)]],                 // [capacity, kv_heads, dim]
    constant uint& tokens [[buffer(9)]],
    constant uint& heads [[buffer(10)]],
    constant uint& kv_heads [[buffer(11)]],
    constant uint& dim [[buffer(12)]],
    constant uint& q_stride [[buffer(13)]],
    constant uint& pairs [[buffer(14)]],
    constant uint& capacity [[buffer(15)]],
    constant uint& position [[buffer(16)]],
    constant float& scale [[buffer(17)]],
    constant float& eps [[buffer(18)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint head = tg.x * kHeads + simd;  // queries first, then keys, then values
  const uint token = tg.y;
  const Rotation rotation = {inv_freq, pairs, position + token, scale};
  if (head < heads) {
    const ulong at = ulong(token) * heads + head;
    rotate_head(q + at * q_stride, q_weight, rotation, q_out + at * dim, dim, eps, lane);
    return;
  }
  const uint row = appends ? (position + token) % capacity : token;
  if (head < heads + kv_heads) {
    const uint own = head - heads;
    device T* y = k_out + (ulong(row) * kv_heads + own) * dim;
    rotate_head(k + (ulong(token) * kv_heads + own) * dim, k_weight, rotation, y, dim, eps, lane);
  } else if (appends && head < heads + 2 * kv_heads) {
    const uint own = head - heads - kv_heads;
    const ulong from = (ulong(token) * kv_heads + own) * dim;
    const ulong to = (ulong(row) * kv_heads + own) * dim;
    for (uint i = lane; i < dim; i += 32) v_out[to + i] = T(v[from + i]);
  }
}

template [[host_name("rope_append_f32")]] kernel decltype(rope_append<float>) rope_append<float>;
template [[host_name("rope_append_f16")]] kernel decltype(rope_append<half>) rope_append<half>;
template [[host_name("rope_append_bf16")]] kernel decltype(rope_append<bfloat>) rope_append<bfloat>;
