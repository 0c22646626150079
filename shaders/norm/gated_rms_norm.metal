// RMS norm of each head times a SiLU gate: the output norm of the delta net.
#include "../common/activations.h"
#include "inverse_norm.h"

constexpr constant uint kHeads = 4;  // heads of one threadgroup, one per simdgroup

// y = x * rsqrt(mean(x^2) + eps) * weight * silu(z) for every head of every token; heads share the weight.
// Layout: heads contiguous; y may be x or z.
// Dispatch: groups (ceil_div(tokens * heads, kHeads)), threads (32 * kHeads)
// Requires: tokens > 0; heads > 0; dim > 0; eps >= 0; tokens * heads < 4294967296
// Numerics: f32, relative error about 2e-6; NaN and inf of x reach only their own head, of z their own value.
template <typename W>
kernel void gated_rms_norm(
    device const float* x [[buffer(0)]],   // [tokens, heads, dim]
    device const float* z [[buffer(1)]],   // [tokens, heads, dim]
    device const W* weight [[buffer(2)]],  // [dim]
    device float* y [[buffer(3)]],         // [tokens, heads, dim]
    constant uint& tokens [[buffer(4)]],
    constant uint& heads [[buffer(5)]],
    constant uint& dim [[buffer(6)]],
    constant float& eps [[buffer(7)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint head = tg * kHeads + simd;
  if (head >= tokens * heads) return;

  const ulong start = ulong(head) * dim;
  const float inverse = inverse_norm(x + start, dim, float(dim), eps, SimdgroupRow{lane, 32});
  for (uint i = lane; i < dim; i += 32)
    y[start + i] = x[start + i] * inverse * float(weight[i]) * silu(z[start + i]);
}

template [[host_name("gated_rms_norm_f32")]] kernel decltype(gated_rms_norm<float>) gated_rms_norm<float>;
template [[host_name("gated_rms_norm_f16")]] kernel decltype(gated_rms_norm<half>) gated_rms_norm<half>;
template [[host_name("gated_rms_norm_bf16")]] kernel decltype(gated_rms_norm<bfloat>) gated_rms_norm<bfloat>;
