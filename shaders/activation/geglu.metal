// GeGLU (Gemma) of two projections that were computed separately.
#include "../common/activations.h"

constexpr constant uint kThreads = 256;

// y = gelu(gate) * up, value by value; gelu is the tanh approximation.
// Layout: contiguous; y may be gate or up.
// Dispatch: groups (ceil_div(count, kThreads)), threads (kThreads)
// Requires: count > 0
// Numerics: f32, relative error about 1e-6 (more for gate below -3); NaN and inf reach only their own value.
kernel void geglu(
    device const float* gate [[buffer(0)]],  // [count]
    device const float* up [[buffer(1)]],    // [count]
    device float* y [[buffer(2)]],           // [count]
    constant uint& count [[buffer(3)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  const uint i = tg * kThreads + tid;
  if (i < count) y[i] = gelu(gate[i]) * up[i];
}
