// Kernels that show how often and in which order launches of a host loop run, for tests/test_host_loop.py.
#include <metal_stdlib>
using namespace metal;

// to[0] = from[0]
// Dispatch: groups (1), threads (1)
kernel void copy_count(
    device const uint* from [[buffer(0)]],  // [1]
    device uint* to [[buffer(1)]])          // [1]
{
  to[0] = from[0];
}

// log[length[0]] = value, length[0] += 1. What does not fit is dropped.
// Dispatch: groups (1), threads (1)
kernel void append(
    device uint* log [[buffer(0)]],     // [capacity]
    device uint* length [[buffer(1)]],  // [1]
    constant uint& value [[buffer(2)]],
    constant uint& capacity [[buffer(3)]]) {
  if (length[0] < capacity) log[length[0]] = value;
  length[0] += 1;
}

// y[row] = 2 * x[row] for the one row of this pass, from rows of `width` values to rows of `count`.
// Dispatch: groups (1), threads (count)
// Requires: count > 0 && count <= width && width <= 1024
kernel void double_row(
    device const float* x [[buffer(0)]],   // [rows, width]
    device const uint* row [[buffer(1)]],  // [1]
    device float* y [[buffer(2)]],         // [rows, count]
    constant uint& rows [[buffer(3)]],
    constant uint& width [[buffer(4)]],
    constant uint& count [[buffer(5)]],
    uint tid [[thread_position_in_threadgroup]]) {
  if (row[0] < rows) y[row[0] * count + tid] = 2 * x[row[0] * width + tid];
}
