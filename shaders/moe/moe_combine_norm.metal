// Joins the experts of each token with the residual stream, and normalises the sum for the next layer.
#include "../norm/inverse_norm.h"
#include "combine.h"

constexpr constant uint kThreads = 512;
constexpr constant uint kHeld = 4;  // values of a thread that stay in registers

// sum as y of moe_combine, y = sum * rsqrt(mean(sum^2) + eps) * norm_weight, token by token.
// Layout: all row-major and contiguous; sum may be residual or shared.
// Dispatch: groups (tokens), threads (kThreads)
// Requires: tokens > 0; k > 0; dim > 0; eps >= 0; has_shared || !has_shared_gate
// Numerics: as moe_combine and rms_norm.
template <typename W>
[[max_total_threads_per_threadgroup(kThreads)]] kernel void moe_combine_norm(
    device const float* residual [[buffer(0)]],                                         // [tokens, dim]
    device const float* expert_out [[buffer(1)]],                                       // [tokens, k, dim]
    device const float* weights [[buffer(2)]],                                          // [tokens, k]
    device const float* shared [[buffer(3), function_constant(has_shared)]],            // [tokens, dim]
    device const float* shared_gate [[buffer(4), function_constant(has_shared_gate)]],  // [tokens]
    device const W* norm_weight [[buffer(5)]],                                          // [dim]
    device float* y [[buffer(6)]],                                                      // [tokens, dim]
    device float* sum [[buffer(7)]],                                                    // [tokens, dim]
    constant uint& tokens [[buffer(8)]],
    constant uint& k [[buffer(9)]],
    constant uint& dim [[buffer(10)]],
    constant float& eps [[buffer(11)]],
    uint token [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partials[kThreads / 32];
  const ulong start = ulong(token) * dim;
  if (has_shared) shared += start;
  if (has_shared_gate) shared_gate += token;
  sum += start;
  residual += start;
  expert_out += start * k;
  weights += ulong(token) * k;
  y += start;
  float held[kHeld], factors[kHeld];
  float squares = 0.0f;
#pragma unroll
  for (uint n = 0; n < kHeld; ++n) {
    const uint i = n * kThreads + tid;
    held[n] = factors[n] = 0.0f;
    if (i >= dim) continue;
    factors[n] = float(norm_weight[i]);
    held[n] = combine_value(residual, expert_out, weights, shared, shared_gate, k, dim, i);
    sum[i] = held[n];
    squares = fma(held[n], held[n], squares);
  }
  for (uint i = kHeld * kThreads + tid; i < dim; i += kThreads) {
    const float value = combine_value(residual, expert_out, weights, shared, shared_gate, k, dim, i);
    sum[i] = value;
    squares = fma(value, value, squares);
  }
  const ThreadgroupRow row = {tid, kThreads, lane, simd, partials};
  const float inverse = inverse_norm_of(squares, sum, dim, float(dim), eps, row);
#pragma unroll
  for (uint n = 0; n < kHeld; ++n) {
    const uint i = n * kThreads + tid;
    if (i < dim) y[i] = held[n] * inverse * factors[n];
  }
  for (uint i = kHeld * kThreads + tid; i < dim; i += kThreads)
    y[i] = sum[i] * inverse * float(norm_weight[i]);  // a thread reads back what it wrote
}

template
    [[host_name("moe_combine_norm_f32")]] kernel decltype(moe_combine_norm<float>) moe_combine_norm<float>;
template [[host_name("moe_combine_norm_f16")]] kernel decltype(moe_combine_norm<half>) moe_combine_norm<half>;
template
    [[host_name("moe_combine_norm_bf16")]] kernel decltype(moe_combine_norm<bfloat>) moe_combine_norm<bfloat>;
