// Residual addition.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// y = a + b, value by value.
// Layout: contiguous; y may be a or b.
// Dispatch: groups (ceil_div(count, kThreads)), threads (kThreads)
// Requires: count > 0
// Numerics: exact f32 addition.
kernel void add(
    device const float* a [[buffer(0)]],  // [count]
    device const float* b [[buffer(1)]],  // [count]
    device float* y [[buffer(2)]],        // [count]
    constant uint& count [[buffer(3)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  const uint i = tg * kThreads + tid;
  if (i < count) y[i] = a[i] + b[i];
}
