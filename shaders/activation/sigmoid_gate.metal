// Output gate of gated attention.
#include "../common/activations.h"

constexpr constant uint kThreads = 256;

// y = x * sigmoid(gate), value by value.
// Layout: contiguous; y may be x or gate.
// Dispatch: groups (ceil_div(count, kThreads)), threads (kThreads)
// Requires: count > 0
// Numerics: f32, relative error about 1e-6; NaN reaches only its own value, gate = +-inf is exactly 1 or 0.
kernel void sigmoid_gate(
    device const float* x [[buffer(0)]],     // [count]
    device const float* gate [[buffer(1)]],  // [count]
    device float* y [[buffer(2)]],           // [count]
    constant uint& count [[buffer(3)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  const uint i = tg * kThreads + tid;
  if (i < count) y[i] = x[i] * sigmoid(gate[i]);
}
