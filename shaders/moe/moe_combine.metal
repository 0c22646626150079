// Joins the experts of each token with the residual stream.
#include "combine.h"

constexpr constant uint kThreads = 256;

// y = residual + sum_k weights[:, k] * expert_out[:, k] + s * shared, s = sigmoid(shared_gate), or 1 without it.
// Layout: all row-major and contiguous; y may be residual or shared.
// Dispatch: groups (ceil_div(dim, kThreads), tokens), threads (kThreads)
// Requires: tokens > 0; k > 0; dim > 0; has_shared || !has_shared_gate
// Numerics: f32 fma in the order of k, then shared, then residual; NaN and inf stay visible under weight 0.
kernel void moe_combine(
    device const float* residual [[buffer(0)]],                                         // [tokens, dim]
    device const float* expert_out [[buffer(1)]],                                       // [tokens, k, dim]
    device const float* weights [[buffer(2)]],                                          // [tokens, k]
    device const float* shared [[buffer(3), function_constant(has_shared)]],            // [tokens, dim]
    device const float* shared_gate [[buffer(4), function_constant(has_shared_gate)]],  // [tokens]
    device float* y [[buffer(5)]],                                                      // [tokens, dim]
    constant uint& tokens [[buffer(6)]],
    constant uint& k [[buffer(7)]],
    constant uint& dim [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;

  const uint token = tg.y;
  const ulong start = ulong(token) * dim;
  if (has_shared) shared += start;
  if (has_shared_gate) shared_gate += token;
  y[start + i] = combine_value(
      residual + start, expert_out + start * k, weights + ulong(token) * k, shared, shared_gate, k, dim, i);
}
