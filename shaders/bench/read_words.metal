#include <metal_stdlib>
using namespace metal;

constexpr constant uint kBlockWords = 16384;

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
  words += ulong(tg) * kBlockWords;
  uint sum = 0;
  for (uint i = lane; i < kBlockWords; i += 32) sum += words[i];
  sum = simd_sum(sum);
  if (lane == 0) sums[tg] = sum;
}
