// The sum of a token's experts.
#pragma once

#include "../common/activations.h"

constant bool has_shared [[function_constant(0)]];
constant bool has_shared_gate [[function_constant(1)]];

// Value i of residual + sum_k weights[k] * expert_out[k] + s * shared, s = sigmoid(shared_gate), or 1 without it.
// Pointers are those of the token.
inline float combine_value(
    device const float* residual,
    device const float* expert_out,
    device const float* weights,
    device const float* shared,
    device const float* shared_gate,
    uint k,
    uint dim,
    uint i) {
  float sum = 0.0f;
#pragma unroll 4
  for (uint choice = 0; choice < k; ++choice)
    sum = fma(weights[choice], expert_out[ulong(choice) * dim + i], sum);
  if (has_shared) {
    float scale = 1.0f;
    if (has_shared_gate) scale = sigmoid(*shared_gate);
    sum = fma(scale, shared[i], sum);
  }
  return residual[i] + sum;
}
