#include <metal_stdlib>
using namespace metal;

constexpr constant uint kBlockWords = 16384;
constexpr constant uint kInFlight = 8;  // loads of a lane that do not wait for each other

// sums[b] = sum of the words of block b, modulo 2^32. Measures how fast memory is read.
// Layout: consecutive blocks of 64 KiB.
// Dispatch: groups (blocks), threads (32)
// Requires: blocks > 0
// Numerics: integers.
kernel void read_words(
    device const uint* words [[buffer(0)]],  // [blocks * kBlockWords]
    device uint* sums [[buffer(1)]],         // [blocks]
    constant uint& blocks [[buffer(2)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  device const uint4* vectors = (device const uint4*)(words + ulong(tg) * kBlockWords);
  uint4 sum = uint4(0);
  for (uint i = lane; i < kBlockWords / 4; i += 32 * kInFlight) {
#pragma unroll
    for (uint j = 0; j < kInFlight; ++j) {
      const uint4 loaded = vectors[i + 32 * j];
      sum += loaded;
    }
  }
  const uint total = simd_sum(sum.x + sum.y + sum.z + sum.w);
  if (lane == 0) sums[tg] = total;
}
