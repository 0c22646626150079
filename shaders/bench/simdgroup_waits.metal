#include <metal_stdlib>
using namespace metal;

// Each thread waits `count` times for its simdgroup. Measures the cost of a switch between threads.
// Dispatch: groups (1), threads (32)
kernel void simdgroup_waits(constant uint& count [[buffer(0)]], uint tid [[thread_position_in_threadgroup]]) {
  for (uint i = 0; i < count; ++i) simdgroup_barrier(mem_flags::mem_none);
}
