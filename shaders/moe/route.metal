// Router: softmax over all experts, then the best of them.
#include "choose.h"

constant bool normalize [[function_constant(0)]];

constexpr constant uint kTokens = 4;  // tokens of one threadgroup, one per simdgroup

// ids = the k largest logits of each token, largest first, the lower id among equals; weights = their softmax
// over all experts, with normalize divided by its sum over the k: never 0 / 0, the first exponential is 1.
// Dispatch: groups (ceil_div(tokens, kTokens)), threads (32 * kTokens)
// Requires: tokens > 0; experts > 0; experts <= 32 * kPerLane; k > 0; k <= 16; k <= experts
// Numerics: ids by integer compares, NaN first; f32 weights, all NaN in a row with NaN, inf or only -inf.
kernel void route(
    device const float* logits [[buffer(0)]],  // [tokens, experts]
    device int* ids [[buffer(1)]],             // [tokens, k]
    device float* weights [[buffer(2)]],       // [tokens, k]
    constant uint& tokens [[buffer(3)]],
    constant uint& experts [[buffer(4)]],
    constant uint& k [[buffer(5)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint token = tg * kTokens + simd;
  if (token >= tokens) return;

  logits += ulong(token) * experts;
  uint keys[kPerLane];
#pragma unroll
  for (uint i = 0; i < kPerLane; ++i) {
    const uint expert = lane + 32 * i;
    keys[i] = expert < experts ? order_key(logits[expert]) : 0;
  }
  const uint own = choose_best(keys, k, lane);

  const float logit = logits[own];
  const float largest = simd_broadcast(logit, 0);
  const float weight = exp(logit - largest);
  float sum = lane < k ? weight : 0.0f;
  if (!normalize) {
    sum = 0.0f;
    for (uint i = lane; i < experts; i += 32) sum += exp(logits[i] - largest);
  }
  const float total = simd_sum(sum);
  if (lane < k) {
    ids[ulong(token) * k + lane] = int(own);
    weights[ulong(token) * k + lane] = weight / total;
  }
}
