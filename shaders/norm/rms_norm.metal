// RMS norm of token rows, with an optional residual addition in front.
#include "inverse_norm.h"

constant bool has_residual [[function_constant(0)]];

constexpr constant uint kThreads = 256;

// y = v * rsqrt(mean(v^2) + eps) * weight, row by row; v = x, or x + residual, which is then stored in sum.
// Layout: rows contiguous; sum may be x or residual, y may be x.
// Dispatch: groups (tokens), threads (kThreads)
// Requires: tokens > 0; dim > 0; eps >= 0
// Numerics: f32 sums, relative error about 1e-6; NaN and inf reach only their own row.
template <typename W>
kernel void rms_norm(
    device const float* x [[buffer(0)]],                                          // [tokens, dim]
    device const W* weight [[buffer(1)]],                                         // [dim]
    device float* y [[buffer(2)]],                                                // [tokens, dim]
    device const float* residual [[buffer(3), function_constant(has_residual)]],  // [tokens, dim]
    device float* sum [[buffer(4), function_constant(has_residual)]],             // [tokens, dim]
    constant uint& tokens [[buffer(5)]],
    constant uint& dim [[buffer(6)]],
    constant float& eps [[buffer(7)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partials[kThreads / 32];
  const ulong start = ulong(tg) * dim;
  device const float* v = x + start;
  if (has_residual) {
    for (uint i = tid; i < dim; i += kThreads) sum[start + i] = v[i] + residual[start + i];
    v = sum + start;  // each thread reads back only what it wrote
  }
  const ThreadgroupRow row = {tid, kThreads, lane, simd, partials};
  const float inverse = inverse_norm(v, dim, float(dim), eps, row);
  for (uint i = tid; i < dim; i += kThreads) y[start + i] = v[i] * inverse * float(weight[i]);
}

template [[host_name("rms_norm_f32")]] kernel decltype(rms_norm<float>) rms_norm<float>;
template [[host_name("rms_norm_f16")]] kernel decltype(rms_norm<half>) rms_norm<half>;
template [[host_name("rms_norm_bf16")]] kernel decltype(rms_norm<bfloat>) rms_norm<bfloat>;
