// Stops the launches behind a host loop without the host: devices that are given all launches ahead of time use it.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// If nothing is missing and all gates before this one are open, passed = number + 1. Otherwise the launches from begin to
// end run no threadgroups.
// Layout: groups are MTLDispatchThreadgroupsIndirectArguments; number counts gates from 0.
// Dispatch: groups (1), threads (kThreads)
// Requires: begin <= end; end < 1431655765
kernel void gate(
    device const uint* missing [[buffer(0)]],  // [1]
    device uint* passed [[buffer(1)]],         // [1]
    device uint* groups [[buffer(2)]],         // [end, 3]
    constant uint& number [[buffer(3)]],
    constant uint& begin [[buffer(4)]],
    constant uint& end [[buffer(5)]],
    uint tid [[thread_position_in_threadgroup]]) {
  const bool open = passed[0] == number && missing[0] == 0;
  threadgroup_barrier(mem_flags::mem_device);  // all threads have read it
  if (open && tid == 0) passed[0] = number + 1;
  for (uint i = 3 * begin + tid; !open && i < 3 * end; i += kThreads) groups[i] = 0;
}
