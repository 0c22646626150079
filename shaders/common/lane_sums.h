// Several sums over the lanes of a simdgroup at once, with as many exchanges as there are sums and a few more.
#pragma once

#include <metal_stdlib>
using namespace metal;

// Of two lanes `stride` apart, each keeps half of 2 * stride sums.
template <uint stride>
inline void fold(thread float* p, uint lane) {
  const bool upper = (lane & stride) != 0;
#pragma unroll
  for (uint i = 0; i < stride; ++i) {
    const float low = p[i];
    const float high = p[i + stride];
    const float kept = upper ? high : low;
    const float sent = upper ? low : high;
    p[i] = kept + simd_shuffle_xor(sent, ushort(stride));
  }
}

// Lane i gets the sum over all lanes, or those of its `width` neighbours, of p[i % count]; count and width are powers of two
// up to 32, count at most width. Changes p.
template <uint count>
inline float sums_by_lane(thread float* p, uint lane, uint width = 32) {
  if (count > 16) fold<16>(p, lane);
  if (count > 8) fold<8>(p, lane);
  if (count > 4) fold<4>(p, lane);
  if (count > 2) fold<2>(p, lane);
  if (count > 1) fold<1>(p, lane);
  float sum = p[0];
#pragma unroll
  for (uint stride = count; stride < width; stride *= 2) sum += simd_shuffle_xor(sum, ushort(stride));
  return sum;
}
