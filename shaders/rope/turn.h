// The angle of a pair.
#pragma once

#include <metal_stdlib>
using namespace metal;

// Cosine and sine of position * inv_freq, times scale.
inline float2 turn_of(uint position, float inv_freq, float scale) {
  const float angle = float(position) * inv_freq;
  return float2(precise::cos(angle) * scale, precise::sin(angle) * scale);
}
