// l2 norm of the delta net's query and key heads, which are columns of the output of its convolution.
#include "inverse_norm.h"

constexpr constant uint kHeads = 4;  // heads of one threadgroup, one per simdgroup

// k_out = k * rsqrt(sum(k^2) + eps), q_out = q * rsqrt(sum(q^2) + eps) * dim^-1/2, head by head.
// Layout: token t starts at t * stride in q and k; outputs are contiguous.
// Dispatch: groups (ceil_div(2 * tokens * heads, kHeads)), threads (32 * kHeads)
// Requires: tokens > 0; heads > 0; dim > 0; stride >= heads * dim; eps >= 0; 2 * tokens * heads < 4294967296
// Numerics: f32 sums, relative error about 1e-6; NaN and inf reach only their own head.
kernel void qk_norm(
    device const float* q [[buffer(0)]],  // [(tokens - 1) * stride + heads * dim]
    device const float* k [[buffer(1)]],  // [(tokens - 1) * stride + heads * dim]
    device float* q_out [[buffer(2)]],    // [tokens, heads, dim]
    device float* k_out [[buffer(3)]],    // [tokens, heads, dim]
    constant uint& tokens [[buffer(4)]],
    constant uint& heads [[buffer(5)]],
    constant uint& dim [[buffer(6)]],
    constant uint& stride [[buffer(7)]],
    constant float& eps [[buffer(8)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint count = tokens * heads;
  const uint index = tg * kHeads + simd;
  if (index >= 2 * count) return;

  const bool is_query = index < count;
  const uint head = is_query ? index : index - count;
  device const float* x = (is_query ? q : k) + ulong(head / heads) * stride + ulong(head % heads) * dim;
  device float* y = (is_query ? q_out : k_out) + ulong(head) * dim;
  const float scale = is_query ? rsqrt(float(dim)) : 1.0f;
  const float inverse = inverse_norm(x, dim, 1.0f, eps, SimdgroupRow{lane, 32}) * scale;
  for (uint i = lane; i < dim; i += 32) y[i] = x[i] * inverse;
}
