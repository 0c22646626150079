// Codes inside of bytes as floats. They are not shifted down: the activations that they are multiplied with are multiplied
// with code_place before, and sums of products with kCodeUnit after. Here two of a word become floats at once.
#pragma once

#include <metal_stdlib>
using namespace metal;

// Two integers below 2^10, from bits 0 and 16 on, divided by kPairUnit: they are the mantissas of subnormal halves, which
// GPUs of Apple and NVIDIA keep in conversions.
inline float2 small_pair(uint word) { return float2(as_type<half2>(word)); }
constexpr constant float kPairUnit = 16777216;  // 2^24

// The code of `bits` bits from bit `at` of a word on, divided by code_place and by kCodeUnit.
template <uint bits>
inline float code_at(uint word, uint at) {
  const uint bytes = word >> (at % 16 / 8 * 8);
  const float2 pair = small_pair(bytes & 0x10001u * (((1u << bits) - 1) << (at % 8)));
  return at < 16 ? pair.x : pair.y;
}

inline float code_place(uint at) { return 1.0f / float(1u << (at % 8)); }
constexpr constant float kCodeUnit = kPairUnit;

// Whether codes are so small that products may be subnormal, and then lose bits, or activations infinite. If so:
//   has_all_bits(total)  whether the sum of the activations says that products lose no bits that count
//   power_near(size)     a power of two near the sum of their absolute values, and its inverse
constexpr constant bool kSmallProducts = false;
inline bool has_all_bits(float /*total*/) { return true; }
inline float2 power_near(float /*size*/) { return 1; }
