// New rows of a compressed cache.
#include "rotation.h"

constant uint bits [[function_constant(0)]];
constant bool rotates [[function_constant(1)]];
constant bool has_means [[function_constant(2)]];
constant bool has_recent [[function_constant(3)]];

constexpr constant uint kRows = 4;            // rows of one threadgroup, one per simdgroup
constexpr constant float kLeastNorm = 1e-8f;  // of a vector whose direction is kept

// Row (position + t) % capacity of a head gets the codes of y sqrt(dim) / r, y = P x[t] (x[t] unless it rotates), r = |y|,
// with 8 bits those of y * 127 / 64 / max |y_i|, and the scale r / |centroids|: decoded rows have the length of x. With
// means, x - mean(x) is encoded; with has_recent y of the last tokens is also row (position + t) % recent, key position + t.
// Layout: codes from the lowest bit of a row's words on, then zeros. Of more tokens than the capacity the last are kept.
// Dispatch: groups (ceil_div(tokens * kv_heads, kRows), batch), threads (32 * kRows)
// Requires: bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8; batch > 0; kv_heads > 0;
//   0 < tokens; 0 < capacity;
//   !has_recent || 0 < recent; position + tokens <= 4294967296; tokens * kv_heads <= 2147483647;
//   dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 256 || dim == 512
// Work: bytes (batch * tokens * kv_heads * dim * 8)
// Numerics: f32; scales, means and recent rows are rounded once, and are inf above 65504. The scale of a vector
//   with NaN or inf, or longer than 1.8e19, is NaN or inf.
kernel void turbo_encode(
    device const float* x [[buffer(0)]],                                   // [batch, tokens, kv_heads, dim]
    device const float* signs [[buffer(1), function_constant(rotates)]],   // [dim]
    device const float* ones [[buffer(2), function_constant(has_means)]],  // [dim]
    device uint* packed [[buffer(3)]],  // [batch, kv_heads, capacity, ceil_div(dim * bits, 32)]
    device half* scales [[buffer(4)]],  // [batch, kv_heads, capacity]
    device half* means [[buffer(5), function_constant(has_means)]],         // [batch, kv_heads, capacity]
    device half* recent_rows [[buffer(6), function_constant(has_recent)]],  // [batch, kv_heads, recent, dim]
    device uint* recent_keys [[buffer(7), function_constant(has_recent)]],  // [recent]
    constant uint& batch [[buffer(8)]],
    constant uint& tokens [[buffer(9)]],
    constant uint& capacity [[buffer(10)]],
    constant uint& kv_heads [[buffer(11)]],
    constant uint& dim [[buffer(12)]],
    constant uint& position [[buffer(13)]],
    constant uint& recent [[buffer(14)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[kRows * kMaxDim];
  threadgroup uchar code_memory[kRows * kMaxDim];
  const uint index = tg.x * kRows + simd;
  if (index >= tokens * kv_heads || tokens - index / kv_heads > capacity) return;
  threadgroup float* row = memory + simd * kMaxDim;
  threadgroup uchar* codes = code_memory + simd * kMaxDim;

  x += (ulong(tg.y) * tokens * kv_heads + index) * dim;
  for (uint i = lane; i < dim; i += 32) row[i] = rotates ? x[i] * signs[i] : x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (rotates) hadamard_row(row, dim, false, lane);
  const float factor = rotates ? 1.0f / sqrt(float(dim)) : 1.0f;

  const uint token = index / kv_heads;
  if (has_recent && tokens - token <= recent) {
    const uint slot = (position + token) % recent;
    recent_rows += ((ulong(tg.y) * kv_heads + index % kv_heads) * recent + slot) * dim;
    for (uint i = lane; i < dim; i += 32) recent_rows[i] = half(row[i] * factor);
    if (lane == 0 && tg.y == 0 && index % kv_heads == 0) recent_keys[slot] = position + token;
  }

  float mean = 0.0f;
  if (has_means) {
    float sum = 0.0f;
    for (uint i = lane; i < dim; i += 32) sum = fma(row[i] * factor, ones[i], sum);
    mean = simd_sum(sum) / float(dim);
  }
  float squares = 0.0f;
  float largest = 0.0f;
  for (uint i = lane; i < dim; i += 32) {
    row[i] = has_means ? fma(-mean, ones[i], row[i] * factor) : row[i] * factor;
    squares = fma(row[i], row[i], squares);
    largest = max(largest, abs(row[i]));
  }
  const float norm = sqrt(simd_sum(squares));
  const float inverse = norm > kLeastNorm ? code_factor(norm, simd_max(largest), dim, bits) : 0.0f;

  float decoded = 0.0f;
  for (uint i = lane; i < dim; i += 32) {
    const uint code = nearest(row[i] * inverse, bits);
    const float value = centroid(code, bits);
    codes[i] = uchar(code);
    decoded = fma(value, value, decoded);
  }
  decoded = sqrt(simd_sum(decoded));
  simdgroup_barrier(mem_flags::mem_threadgroup);

  const uint slot = (position + token) % capacity;
  const ulong target = (ulong(tg.y) * kv_heads + index % kv_heads) * capacity + slot;
  const uint words = row_words(dim, bits);
  packed += target * words;
  for (uint w = lane; w < words; w += 32) {
    uint word = 0;
    for (uint i = w * 32 / bits; i < dim && i * bits < w * 32 + 32; ++i) {
      const uint code = codes[i];
      word |= i * bits < w * 32 ? code >> (w * 32 - i * bits) : code << (i * bits - w * 32);
    }
    packed[w] = word;
  }
  if (lane == 0) {
    scales[target] = half(decoded > 0.0f ? norm / decoded : norm);
    if (has_means) means[target] = half(mean);
  }
}
