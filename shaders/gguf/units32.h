// Types whose block is one unit: its scale, a bias where it has one, the high bits, then the low bits.
//   codes(type, block, part, index)     octet `index`, one value in each byte
//   scales(type, block, part, index)    scale and bias of that octet
#pragma once

#include "bytes.h"
#include "types.h"

inline uint2 codes(Type<kQ4_0>, device const uchar* block, uint /*part*/, uint index) {
  return load_nibbles<2>(block + 2, index);
}

inline float2 scales(Type<kQ4_0>, device const uchar* block, uint /*part*/, uint /*index*/) {
  return float2(load_half(block), 0);
}

inline uint2 codes(Type<kQ4_1>, device const uchar* block, uint /*part*/, uint index) {
  return load_nibbles<4>(block + 4, index);
}

inline float2 scales(Type<kQ4_1>, device const uchar* block, uint /*part*/, uint /*index*/) {
  return float2(load_half(block), load_half(block + 2));
}

inline uint2 codes(Type<kQ5_0>, device const uchar* block, uint /*part*/, uint index) {
  return load_nibbles<2>(block + 6, index) | spread_bits(block[2 + index]) << 4;
}

inline float2 scales(Type<kQ5_0>, device const uchar* block, uint /*part*/, uint /*index*/) {
  return float2(load_half(block), 0);
}

inline uint2 codes(Type<kQ5_1>, device const uchar* block, uint /*part*/, uint index) {
  return load_nibbles<4>(block + 8, index) | spread_bits(block[4 + index]) << 4;
}

inline float2 scales(Type<kQ5_1>, device const uchar* block, uint /*part*/, uint /*index*/) {
  return float2(load_half(block), load_half(block + 2));
}

inline uint2 codes(Type<kQ8_0>, device const uchar* block, uint /*part*/, uint index) {
  return load_octet<2>(block + 2 + index * 8);
}

inline float2 scales(Type<kQ8_0>, device const uchar* block, uint /*part*/, uint /*index*/) {
  return float2(load_half(block), 0);
}

inline uint2 codes(Type<kIQ4_NL>, device const uchar* block, uint /*part*/, uint index) {
  return load_nibbles<2>(block + 2, index);
}

inline float2 scales(Type<kIQ4_NL>, device const uchar* block, uint /*part*/, uint /*index*/) {
  return float2(load_half(block), 0);
}

inline uint2 codes(Type<kMXFP4>, device const uchar* block, uint /*part*/, uint index) {
  return load_nibbles<1>(block + 1, index);
}

// Half a power of two from 2^-127 on; GGML has no NaN here.
inline float2 scales(Type<kMXFP4>, device const uchar* block, uint /*part*/, uint /*index*/) {
  const uint exponent = block[0];
  return float2(as_type<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23), 0);
}
