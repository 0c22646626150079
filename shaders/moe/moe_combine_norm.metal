// Joins the experts of each token with the residual stream, and normalises the sum for the next layer.
#include "../norm/inverse_norm.h"
#include "combine.h"

constexpr constant uint kThreads = 1024;

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
  for (uint i = tid; i < dim; i += kThreads) {
    sum[i] = combine_value(
        residual + start, expert_out + start * k, weights + ulong(token) * k, shared, shared_gate, k, dim, i);
  }
  const ThreadgroupRow row = {tid, kThreads, lane, simd, partials};
  const float inverse = inverse_norm(sum, dim, float(dim), eps, row);  // a thread reads back what it wrote
  for (uint i = tid; i < dim; i += kThreads) y[start + i] = sum[i] * inverse * float(norm_weight[i]);
}

template
    [[host_name("moe_combine_norm_f32")]] kernel decltype(moe_combine_norm<float>) moe_combine_norm<float>;
template [[host_name("moe_combine_norm_f16")]] kernel decltype(moe_combine_norm<half>) moe_combine_norm<half>;
template
    [[host_name("moe_combine_norm_bf16")]] kernel decltype(moe_combine_norm<bfloat>) moe_combine_norm<bfloat>;
