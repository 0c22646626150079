// Sorts the chosen experts of all tokens into buckets: the order in which prefill multiplies.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kSimdgroups = 8;  // of a threadgroup, each with a run of the ids
constexpr constant uint kAtOnce = 8;      // ids that a lane asks for together

// Ids from `first` on, 32 apart. One outside [0, experts) is `experts`, one from `end` on none at all.
inline void load_ids(device const int* ids, uint first, uint end, uint experts, thread uint* to) {
#pragma unroll
  for (uint i = 0; i < kAtOnce; ++i) {
    const uint at = first + i * 32;
    to[i] = at < end ? min(uint(ids[at]), experts) : 0xffffffff;  // a negative id is a large one
  }
}

// order = positions of ids sorted by expert, then by position; inverse[order[r]] = r; the rows of bucket e are
// offsets[e] .. offsets[e + 1]. Ids outside [0, experts) come after all buckets and have inverse -1.
// Layout: a position is token * k + choice. Ids are read twice: to count, and to place.
// Dispatch: groups (experts + 1), threads (32 * kSimdgroups)
// Requires: count > 0; count < 2147483648; experts > 0; experts < 2147483648
// Numerics: integers; nothing depends on the order of threads.
kernel void moe_buckets(
    device const int* ids [[buffer(0)]],  // [count]
    device int* offsets [[buffer(1)]],    // [experts + 1]
    device int* order [[buffer(2)]],      // [count]
    device int* inverse [[buffer(3)]],    // [count]
    constant uint& count [[buffer(4)]],
    constant uint& experts [[buffer(5)]],
    uint expert [[threadgroup_position_in_grid]],  // the last one takes the ids outside the range
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint smaller[kSimdgroups];
  threadgroup uint equal[kSimdgroups];
  const uint begin = uint(ulong(count) * simd / kSimdgroups);
  const uint end = uint(ulong(count) * (simd + 1) / kSimdgroups);
  uint found[kAtOnce];
  uint counts[2] = {0, 0};
  for (uint first = begin; first < end; first += 32 * kAtOnce) {
    load_ids(ids, first + lane, end, experts, found);
#pragma unroll
    for (uint i = 0; i < kAtOnce; ++i) {
      counts[0] += found[i] < expert;
      counts[1] += found[i] == expert;
    }
  }
  counts[0] = simd_sum(counts[0]);
  counts[1] = simd_sum(counts[1]);
  if (lane == 0) {
    smaller[simd] = counts[0];
    equal[simd] = counts[1];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  uint row = 0;
#pragma unroll
  for (uint i = 0; i < kSimdgroups; ++i) row += smaller[i];
  if (simd == 0 && lane == 0) offsets[expert] = int(row);
  for (uint i = 0; i < simd; ++i) row += equal[i];
  for (uint first = begin; first < end; first += 32 * kAtOnce) {
    load_ids(ids, first + lane, end, experts, found);
#pragma unroll
    for (uint i = 0; i < kAtOnce; ++i) {
      const bool own = found[i] == expert;
      if (!simd_any(own)) continue;
      const uint place = row + simd_prefix_exclusive_sum(uint(own));
      row += simd_sum(uint(own));
      if (!own || place >= count) continue;  // no row where ids change meanwhile
      const uint position = first + i * 32 + lane;
      order[place] = int(position);
      inverse[position] = expert < experts ? int(place) : -1;
    }
  }
}
