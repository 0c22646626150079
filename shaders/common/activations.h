// Activation functions of one value. None overflows for a finite argument; a NaN argument gives NaN.
#pragma once

#include <metal_stdlib>
using namespace metal;

// 1 / (1 + e^-x). For very negative x the exponential is inf and the quotient 0, its limit.
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// x * sigmoid(x), as one quotient: large |x| gives x or -0, and -inf gives NaN.
inline float silu(float x) { return x / (1.0f + exp(-x)); }

// GELU, tanh approximation: 0.5 * (1 + tanh(u)) is sigmoid(2u), which stays accurate for negative u.
inline float gelu(float x) {
  const float u = 0.7978845608f * x * (1.0f + 0.044715f * x * x);
  return x / (1.0f + exp(-2.0f * u));
}
