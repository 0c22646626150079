// Finds which experts that tokens have chosen are in memory.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 512;

// slots[e] = table[e]; counts[e] += the choices of e; missing[0] = the experts with a choice and a negative slot.
// Layout: contiguous; slots may be table. A thread has an expert, for which it reads all ids.
// Dispatch: groups (1), threads (kThreads)
// Requires: choices > 0; experts > 0
// Numerics: integers. Ids outside [0, experts) count nothing.
kernel void find_slots(
    device const int* ids [[buffer(0)]],    // [choices]
    device const int* table [[buffer(1)]],  // [experts]
    device uint* counts [[buffer(2)]],      // [experts]
    device int* slots [[buffer(3)]],        // [experts]
    device uint* missing [[buffer(4)]],     // [1]
    constant uint& choices [[buffer(5)]],
    constant uint& experts [[buffer(6)]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint partials[kThreads / 32];
  uint own = 0;
  for (uint expert = tid; expert < experts; expert += kThreads) {
    uint count = 0;
    for (uint i = 0; i < choices; ++i) count += uint(ids[i]) == expert;
    const int slot = table[expert];
    slots[expert] = slot;
    counts[expert] += count;
    own += count > 0 && slot < 0;
  }
  const uint sum = simd_sum(own);
  if (lane == 0) partials[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd > 0) return;
  const uint total = simd_sum(lane < kThreads / 32 ? partials[lane] : 0);
  if (lane == 0) missing[0] = total;
}
