// Loads from blocks of bytes, which start at any multiple of `align` bytes: 1, 2 or 4.
#pragma once

#include <metal_stdlib>
using namespace metal;

inline float load_half(device const uchar* source) { return float(*(device const half*)source); }

template <uint align>
inline uint load_word(device const uchar* source) {
  if (align == 4) return *(device const uint*)source;
  if (align == 2) {
    device const ushort* halves = (device const ushort*)source;
    return uint(halves[0]) | uint(halves[1]) << 16;
  }
  return uint(source[0]) | uint(source[1]) << 8 | uint(source[2]) << 16 | uint(source[3]) << 24;
}

// Eight bytes, the first in the lowest bits.
template <uint align>
inline uint2 load_octet(device const uchar* source) {
  return uint2(load_word<align>(source), load_word<align>(source + 4));
}

// Octet `index` of 32 codes in 16 bytes: the first sixteen are the low nibbles, the others the high ones.
template <uint align>
inline uint2 load_nibbles(device const uchar* source, uint index) {
  return (load_octet<align>(source + index % 2 * 8) >> (index / 2 * 4)) & 0x0f0f0f0f;
}

// Bits 0 to 7, each as the lowest bit of its byte.
inline uint2 spread_bits(uint bits) { return (uint2(bits & 15, (bits >> 4) & 15) * 0x00204081) & 0x01010101; }
