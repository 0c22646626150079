// Rows of a compressed cache as floats.
#include "codec.h"

constant uint bits [[function_constant(0)]];
constant bool has_means [[function_constant(1)]];

constexpr constant uint kThreads = 64;

// y[j] = centroids of codes * scale, plus mean * ones: the rotated vector of key j of each head.
// Layout: key j is in row (ring_start + j) % capacity.
// Dispatch: groups (ceil_div(dim, kThreads), kv_heads * batch, context), threads (kThreads)
// Requires: bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8; batch > 0; kv_heads > 0; dim > 0;
//   dim % 16 == 0; dim <= kMaxDim; context > 0; context <= capacity; ring_start < capacity
// Work: bytes (batch * context * kv_heads * dim * 5)
// Numerics: f32; a scale or mean that is not finite shows in its whole row.
kernel void turbo_decode(
    device const uint* packed [[buffer(0)]],  // [batch, kv_heads, capacity, ceil_div(dim * bits, 32)]
    device const half* scales [[buffer(1)]],  // [batch, kv_heads, capacity]
    device const half* means [[buffer(2), function_constant(has_means)]],  // [batch, kv_heads, capacity]
    device const float* ones [[buffer(3), function_constant(has_means)]],  // [dim]
    device float* y [[buffer(4)]],                                         // [batch, context, kv_heads, dim]
    constant uint& batch [[buffer(5)]],
    constant uint& context [[buffer(6)]],
    constant uint& capacity [[buffer(7)]],
    constant uint& ring_start [[buffer(8)]],
    constant uint& kv_heads [[buffer(9)]],
    constant uint& dim [[buffer(10)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;
  const ulong row = ulong(tg.y) * capacity + ring_row(ring_start, tg.z, capacity);
  const uint code = code_at(code_run(packed + row * row_words(dim, bits), i, 1, bits), 0, bits);
  float value = centroid(code, bits) * float(scales[row]);
  if (has_means) value = fma(float(means[row]), ones[i], value);
  const ulong target = (ulong(tg.y / kv_heads) * context + tg.z) * kv_heads + tg.y % kv_heads;
  y[target * dim + i] = value;
}
