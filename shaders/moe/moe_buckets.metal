// Sorts the chosen experts of all tokens into buckets: the order in which prefill multiplies.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kExperts = 4;  // experts of one threadgroup, one per simdgroup

// order = positions of ids sorted by expert, then by position; inverse[order[r]] = r; the rows of bucket e are
// offsets[e] .. offsets[e + 1]. Ids outside [0, experts) come after all buckets and have inverse -1.
// Layout: a position is token * k + choice. Lanes read ids in 32 runs, twice: to count, and to place.
// Dispatch: groups (ceil_div(experts + 1, kExperts)), threads (32 * kExperts)
// Requires: count > 0; count < 2147483648; experts > 0; experts < 2147483648
// Numerics: integers; nothing depends on the order of threads.
kernel void moe_buckets(
    device const int* ids [[buffer(0)]],  // [count]
    device int* offsets [[buffer(1)]],    // [experts + 1]
    device int* order [[buffer(2)]],      // [count]
    device int* inverse [[buffer(3)]],    // [count]
    constant uint& count [[buffer(4)]],
    constant uint& experts [[buffer(5)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint expert = tg * kExperts + simd;  // the last one takes the ids outside the range
  if (expert > experts) return;

  const uint begin = uint(ulong(count) * lane / 32);
  const uint end = uint(ulong(count) * (lane + 1) / 32);
  uint below = 0;
  uint equal = 0;
  for (uint i = begin; i < end; ++i) {
    const uint id = min(uint(ids[i]), experts);  // a negative id is a large one
    below += id < expert;
    equal += id == expert;
  }
  const uint start = simd_sum(below);
  if (lane == 0) offsets[expert] = int(start);

  uint row = start + simd_prefix_exclusive_sum(equal);
  for (uint i = begin; i < end; ++i) {
    if (min(uint(ids[i]), experts) != expert || row >= count) continue;  // no row where ids change meanwhile
    order[row] = int(i);
    inverse[i] = expert < experts ? int(row) : -1;
    ++row;
  }
}
