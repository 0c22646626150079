// Functions of vectors of floats.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// e^x with a relative error below 2e-7; 0 below -87.3, inf above 88.7, NaN for NaN.
PYTURBO_INLINE F32 exponential(F32 x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // few enough bits for exact multiples
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits
  constexpr float kMost = 88.72284f;
  constexpr float kLeast = -87.33654f;
  const I32 over = x > kMost, under = x < kLeast;
  const F32 inside = (F32)(((I32)x & ~(over | under)));
  const F32 shifted = fused(inside, splat(kLog2E), splat(kRound));
  const F32 power = shifted - kRound;
  const F32 r = fused(power, splat(-kLn2Low), fused(power, splat(-kLn2High), inside));
  F32 y = splat(1.0f / 5040);
  y = fused(y, r, splat(1.0f / 720));
  y = fused(y, r, splat(1.0f / 120));
  y = fused(y, r, splat(1.0f / 24));
  y = fused(y, r, splat(1.0f / 6));
  y = fused(y, r, splat(0.5f));
  y = fused(y, r, splat(1.0f));
  y = fused(y, r, splat(1.0f));
  // 2^power in two factors, since 2^128 is not a float.
  const I32 exponent = (I32)shifted - (I32)splat(kRound);
  const I32 half = exponent >> 1;
  y *= (F32)((half + 127) << 23);
  y *= (F32)((exponent - half + 127) << 23);
  y = (F32)((I32)y & ~under);
  return (F32)(((I32)y & ~over) | ((I32)splat(__builtin_inff()) & over));
}

// 1 / (1 + e^-x).
PYTURBO_INLINE F32 sigmoid(F32 x) { return 1.0f / (1.0f + exponential(-x)); }

// x * sigmoid(x): large |x| gives x or -0, and -inf gives NaN.
PYTURBO_INLINE F32 silu(F32 x) { return x / (1.0f + exponential(-x)); }

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
