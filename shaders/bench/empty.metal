#include <metal_stdlib>
using namespace metal;

// Does nothing. Measures the cost of a launch.
// Dispatch: groups (1), threads (32)
kernel void empty(
    device const float* a [[buffer(0)]],
    device const float* b [[buffer(1)]],
    device const float* c [[buffer(2)]],
    device float* d [[buffer(3)]],
    uint tid [[thread_position_in_threadgroup]]) {}

// Does nothing, with a value that a program may set at replay.
// Dispatch: groups (1), threads (count)
kernel void empty_counted(
    device const float* a [[buffer(0)]],
    device const float* b [[buffer(1)]],
    device const float* c [[buffer(2)]],
    device float* d [[buffer(3)]],
    constant uint& count [[buffer(4)]],
    uint tid [[thread_position_in_threadgroup]]) {}
