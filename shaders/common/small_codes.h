// Codes inside of bytes as floats, two of a word at once. They are not shifted down: the activations that they are multiplied
// with are multiplied with code_place before.
#pragma once

#include "units.h"

// Two integers below 2^10, from bits 0 and 16 on, times 2^-24: they are the mantissas of subnormal halves, which GPUs of
// Apple and NVIDIA keep in conversions.
inline float2 small_pair(uint word) { return float2(as_type<half2>(word)); }
constexpr constant float kSmallUnit = 16777216;  // 2^24

// The code of `bits` bits from bit `at` of a word on, divided by code_place and by kSmallUnit.
template <uint bits>
inline float code_at(uint word, uint at) {
  const uint bytes = word >> (at % 16 / 8 * 8);
  const float2 pair = small_pair(bytes & 0x10001u * (((1u << bits) - 1) << (at % 8)));
  return at < 16 ? pair.x : pair.y;
}

inline float code_place(uint at) { return 1.0f / float(1u << (at % 8)); }
