// Types whose block is eight units, parts 0 to 7; units32.h describes the two functions.
// Low and high bits of the codes lie apart; scales are small integers times that of the block.
#pragma once

#include "bytes.h"
#include "types.h"

// 16 scales and minima of 4 bits, 64 bytes of codes, d, dmin. A half of 128 values takes 32 bytes.
inline uint2 codes(Type<kQ2_K>, device const uchar* block, uint part, uint index) {
  return (load_octet<4>(block + 16 + part / 4 * 32 + index * 8) >> (part % 4 * 2)) & 0x03030303;
}

inline float2 scales(Type<kQ2_K>, device const uchar* block, uint part, uint index) {
  const uint scale = block[part * 2 + index / 2];
  return float2(load_half(block + 80) * float(scale & 15), -(load_half(block + 82) * float(scale >> 4)));
}

// 32 bytes of high bits, one bit in each for every part, 64 bytes as in Q2_K, 16 scales of 6 bits, d.
inline uint2 codes(Type<kQ3_K>, device const uchar* block, uint part, uint index) {
  const uint2 low = load_octet<2>(block + 32 + part / 4 * 32 + index * 8) >> (part % 4 * 2);
  const uint2 high = load_octet<2>(block + index * 8) >> part;
  return (low & 0x03030303) | (high & 0x01010101) << 2;
}

inline float2 scales(Type<kQ3_K>, device const uchar* block, uint part, uint index) {
  const uint group = part * 2 + index / 2;
  const uint low = block[96 + group % 8] >> (group / 8 * 4);
  const uint high = block[104 + group % 4] >> (group / 4 * 2);
  return float2(load_half(block + 108) * float(int((low & 15) | (high & 3) << 4) - 32), 0);
}

// Scale and bias of Q4_K and Q5_K, which start with d, dmin, 8 scales and 8 minima of 6 bits in 12 bytes. The
// high two bits of the last four of each are above the first four.
inline float2 scale_and_minimum(device const uchar* block, uint part) {
  device const uchar* packed = block + 4 + part % 4;
  uint scale = packed[0];
  uint minimum = packed[4];
  if (part < 4) {
    scale &= 63;
    minimum &= 63;
  } else {
    scale = (packed[8] & 15) | (scale >> 6) << 4;
    minimum = (packed[8] >> 4) | (minimum >> 6) << 4;
  }
  return float2(load_half(block) * float(scale), -(load_half(block + 2) * float(minimum)));
}

// 128 bytes of codes: two parts in the low and the high nibbles of 32 bytes.
inline uint2 codes(Type<kQ4_K>, device const uchar* block, uint part, uint index) {
  return (load_octet<4>(block + 16 + part / 2 * 32 + index * 8) >> (part % 2 * 4)) & 0x0f0f0f0f;
}

inline float2 scales(Type<kQ4_K>, device const uchar* block, uint part, uint /*index*/) {
  return scale_and_minimum(block, part);
}

// 32 bytes of high bits as in Q3_K, then 128 bytes as in Q4_K.
inline uint2 codes(Type<kQ5_K>, device const uchar* block, uint part, uint index) {
  const uint2 low = load_octet<4>(block + 48 + part / 2 * 32 + index * 8) >> (part % 2 * 4);
  const uint2 high = load_octet<4>(block + 16 + index * 8) >> part;
  return (low & 0x0f0f0f0f) | (high & 0x01010101) << 4;
}

inline float2 scales(Type<kQ5_K>, device const uchar* block, uint part, uint /*index*/) {
  return scale_and_minimum(block, part);
}

// 128 bytes of low bits, 64 of high ones, 16 signed scales, d. A half of 128 values takes 64 and 32 bytes.
inline uint2 codes(Type<kQ6_K>, device const uchar* block, uint part, uint index) {
  const uint within = part % 4;
  device const uchar* source = block + part / 4 * 64 + within % 2 * 32 + index * 8;
  const uint2 low = load_octet<2>(source) >> (within / 2 * 4);
  const uint2 high = load_octet<2>(block + 128 + part / 4 * 32 + index * 8) >> (within * 2);
  return (low & 0x0f0f0f0f) | (high & 0x03030303) << 4;
}

inline float2 scales(Type<kQ6_K>, device const uchar* block, uint part, uint index) {
  const int scale = int(uint(block[192 + part * 2 + index / 2]) ^ 128) - 128;
  return float2(load_half(block + 208) * float(scale), 0);
}

// d, two high bits of each scale, four low bits of each, 16 bytes of codes for each part as in IQ4_NL.
inline uint2 codes(Type<kIQ4_XS>, device const uchar* block, uint part, uint index) {
  return load_nibbles<4>(block + 8 + part * 16, index);
}

inline float2 scales(Type<kIQ4_XS>, device const uchar* block, uint part, uint /*index*/) {
  const uint low = block[4 + part / 2] >> (part % 2 * 4);
  const uint high = block[2 + part / 4] >> (part % 4 * 2);
  return float2(load_half(block) * float(int((low & 15) | (high & 3) << 4) - 32), 0);
}
