// The clamped SwiGLU of gpt-oss.
#include "../common/activations.h"

constexpr constant uint kThreads = 256;

// y = g * sigmoid(alpha * g) * (u + 1), g = gate clipped above at limit, u = up clipped to [-limit, limit].
// Layout: contiguous; y may be gate or up.
// Dispatch: groups (ceil_div(count, kThreads)), threads (kThreads)
// Requires: count > 0; limit >= 0
// Numerics: f32, relative error about 1e-6; NaN stays NaN, an infinite value is clipped like any other.
kernel void swiglu_clamped(
    device const float* gate [[buffer(0)]],  // [count]
    device const float* up [[buffer(1)]],    // [count]
    device float* y [[buffer(2)]],           // [count]
    constant uint& count [[buffer(3)]],
    constant float& alpha [[buffer(4)]],
    constant float& limit [[buffer(5)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  const uint i = tg * kThreads + tid;
  if (i >= count) return;

  // Comparisons and not min(), which would replace NaN by the limit.
  const float g = gate[i] > limit ? limit : gate[i];
  const float above = up[i] < -limit ? -limit : up[i];
  const float u = above > limit ? limit : above;
  y[i] = g * sigmoid(alpha * g) * (u + 1.0f);
}
