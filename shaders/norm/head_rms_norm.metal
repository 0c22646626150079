// RMS norm of each head: q_norm and k_norm.
#include "inverse_norm.h"

constexpr constant uint kHeads = 4;  // heads of one threadgroup, one per simdgroup

// y = x * rsqrt(mean(x^2) + eps) * weight for every head of every token; heads share the weight.
// Layout: heads contiguous; y may be x.
// Dispatch: groups (ceil_div(tokens * heads, kHeads)), threads (32 * kHeads)
// Requires: tokens > 0; heads > 0; dim > 0; eps >= 0; tokens * heads < 4294967296
// Numerics: f32 sums, relative error about 1e-6; NaN and inf reach only their own head.
template <typename W>
kernel void head_rms_norm(
    device const float* x [[buffer(0)]],   // [tokens, heads, dim]
    device const W* weight [[buffer(1)]],  // [dim]
    device float* y [[buffer(2)]],         // [tokens, heads, dim]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& dim [[buffer(5)]],
    constant float& eps [[buffer(6)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint head = tg * kHeads + simd;
  if (head >= tokens * heads) return;

  x += ulong(head) * dim;
  y += ulong(head) * dim;
  const float inverse = inverse_norm(x, dim, float(dim), eps, SimdgroupRow{lane, 32});
  for (uint i = lane; i < dim; i += 32) y[i] = x[i] * inverse * float(weight[i]);
}

template [[host_name("head_rms_norm_f32")]] kernel decltype(head_rms_norm<float>) head_rms_norm<float>;
template [[host_name("head_rms_norm_f16")]] kernel decltype(head_rms_norm<half>) head_rms_norm<half>;
template [[host_name("head_rms_norm_bf16")]] kernel decltype(head_rms_norm<bfloat>) head_rms_norm<bfloat>;
