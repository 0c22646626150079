// The block types of GGUF by their numbers in GGML, and what their codes stand for.
#pragma once

#include <metal_stdlib>
using namespace metal;

constexpr constant uint kQ4_0 = 2;
constexpr constant uint kQ4_1 = 3;
constexpr constant uint kQ5_0 = 6;
constexpr constant uint kQ5_1 = 7;
constexpr constant uint kQ8_0 = 8;
constexpr constant uint kQ2_K = 10;
constexpr constant uint kQ3_K = 11;
constexpr constant uint kQ4_K = 12;
constexpr constant uint kQ5_K = 13;
constexpr constant uint kQ6_K = 14;
constexpr constant uint kIQ4_NL = 20;
constexpr constant uint kIQ4_XS = 23;
constexpr constant uint kMXFP4 = 39;

// Selects the functions of a type.
template <uint type>
struct Type {};

constexpr constant float kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
constexpr constant float kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Values that share a scale.
template <uint type>
constexpr uint group_of() {
  return type == kQ2_K || type == kQ3_K || type == kQ6_K ? 16 : 32;
}

// Whether value = code * scale + bias; in other types it is code * scale.
template <uint type>
constexpr bool has_bias() {
  return type == kQ4_1 || type == kQ5_1 || type == kQ2_K || type == kQ4_K || type == kQ5_K;
}

// The byte that stands for code 0 in types whose codes are integers without a sign.
template <uint type>
constexpr uint zero_of() {
  return type == kQ3_K ? 4 : type == kQ4_0 ? 8 : type == kQ5_0 ? 16 : type == kQ6_K ? 32 : 0;
}

// Whether a byte is its code plus zero_of, and less than 128.
template <uint type>
constexpr bool has_integers() {
  return type != kIQ4_NL && type != kIQ4_XS && type != kMXFP4 && type != kQ8_0;
}

// The code that a byte of an octet stands for.
template <uint type>
inline float decode(uint byte) {
  if (type == kIQ4_NL || type == kIQ4_XS) return kIQ4Values[byte];
  if (type == kMXFP4) return kTwiceE2M1[byte];
  if (type == kQ8_0) return float(int(byte ^ 128) - 128);
  return float(int(byte) - int(zero_of<type>()));
}
