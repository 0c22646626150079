// Gates of the delta net from their projections.
#include "gates.h"

constexpr constant uint kThreads = 256;

// g = exp(-exp(a_log) * softplus(a + dt_bias)), beta = sigmoid(b), for every head of every token.
// Layout: contiguous; g may be a, beta may be b.
// Dispatch: groups (ceil_div(tokens * heads, kThreads)), threads (kThreads)
// Requires: tokens > 0; heads > 0; tokens * heads < 4294967296
// Numerics: f32; relative error of g about 1e-6 * (1 - log g), nothing overflows; NaN reaches only its own value.
template <typename A, typename D>
kernel void decay_beta(
    device const float* a [[buffer(0)]],    // [tokens, heads]
    device const float* b [[buffer(1)]],    // [tokens, heads]
    device const A* a_log [[buffer(2)]],    // [heads]
    device const D* dt_bias [[buffer(3)]],  // [heads]
    device float* g [[buffer(4)]],          // [tokens, heads]
    device float* beta [[buffer(5)]],       // [tokens, heads]
    constant uint& tokens [[buffer(6)]],
    constant uint& heads [[buffer(7)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  const ulong i = ulong(tg) * kThreads + tid;
  if (i >= ulong(tokens) * heads) return;

  const uint head = uint(i % heads);
  g[i] = decay_of(a[i], float(a_log[head]), float(dt_bias[head]));
  beta[i] = sigmoid(b[i]);
}

#define INSTANTIATE_DECAY_BETA_AS(A, a_name, D, d_name) \
  template                                              \
      [[host_name("decay_beta_" #a_name "_" #d_name)]] kernel decltype(decay_beta<A, D>) decay_beta<A, D>;
#define INSTANTIATE_DECAY_BETA(A, name)          \
  INSTANTIATE_DECAY_BETA_AS(A, name, float, f32) \
  INSTANTIATE_DECAY_BETA_AS(A, name, half, f16)  \
  INSTANTIATE_DECAY_BETA_AS(A, name, bfloat, bf16)
INSTANTIATE_DECAY_BETA(float, f32)
INSTANTIATE_DECAY_BETA(half, f16)
INSTANTIATE_DECAY_BETA(bfloat, bf16)
