// l2 norm of the delta net's query and key heads, in place in the output of its convolution.
#include "inverse_norm.h"

constexpr constant uint kHeads = 4;  // heads of one threadgroup, one per simdgroup

// k = k * rsqrt(sum(k^2) + eps), q = q * rsqrt(sum(q^2) + eps) * dim^-1/2, for every head of every token.
// Layout: token t starts at t * stride in both; q and k may share a buffer where their heads do not overlap.
// Dispatch: groups (ceil_div(2 * tokens * heads, kHeads)), threads (32 * kHeads)
// Requires: tokens > 0; heads > 0; dim > 0; stride >= heads * dim; eps >= 0; 2 * tokens * heads < 4294967296
// Numerics: f32 sums, relative error about 1e-6; NaN and inf reach only their own head.
kernel void qk_norm(
    device float* q [[buffer(0)]],  // [(tokens - 1) * stride + heads * dim]
    device float* k [[buffer(1)]],  // [(tokens - 1) * stride + heads * dim]
    constant uint& tokens [[buffer(2)]],
    constant uint& heads [[buffer(3)]],
    constant uint& dim [[buffer(4)]],
    constant uint& stride [[buffer(5)]],
    constant float& eps [[buffer(6)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint count = tokens * heads;
  const uint index = tg * kHeads + simd;
  if (index >= 2 * count) return;

  const bool is_query = index < count;
  const uint head = is_query ? index : index - count;
  device float* x = (is_query ? q : k) + ulong(head / heads) * stride + ulong(head % heads) * dim;
  const float scale = is_query ? rsqrt(float(dim)) : 1.0f;
  const float inverse = inverse_norm(x, dim, 1.0f, eps, SimdgroupRow{lane, 32}) * scale;
  for (uint i = lane; i < dim; i += 32) x[i] *= inverse;
}
