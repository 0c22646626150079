// Spans of Q4_K, Q5_K and Q6_K in registers. They are not units: a span has all bits of the bytes that it reads, so that
// each byte is read once. Codes are read as small_codes.h says.
#pragma once

#include "../common/small_codes.h"
#include "spans.h"

// Sum + the bytes of a word times x[0] to x[3], divided by kCodeUnit.
inline float add_bytes(uint word, thread const float* x, float sum) {
#pragma unroll
  for (uint i = 0; i < 4; ++i) sum = fma(code_at<8>(word, i * 8), x[i], sum);
  return sum;
}

// Q4_K and Q5_K: 16 values each of units 2 * pair and 2 * pair + 1, the low and high nibbles of 16 bytes.
template <>
struct BlockSpan<kQ4_K> {
  uint4 header;  // d, dmin, scales and minima
  uint4 codes;
  uint pair;
};

template <>
struct BlockSpan<kQ5_K> {
  uint4 header;
  uint4 codes;
  uint4 high;
  uint pair;
};

inline uint column_in_pair(uint part, uint i) { return part / 2 * 64 + i / 16 * 32 + part % 2 * 16 + i % 16; }

inline uint column_in_block(Type<kQ4_K>, uint part, uint i) { return column_in_pair(part, i); }

inline uint column_in_block(Type<kQ5_K>, uint part, uint i) { return column_in_pair(part, i); }

inline uint nibble(uint i) { return i % 4 * 8 + i / 16 * 4; }  // the bit of its word that value i begins with

inline float place(Type<kQ4_K>, uint i) { return code_place(nibble(i)); }
inline float place(Type<kQ5_K>, uint i) { return code_place(i % 4 * 8); }
inline float place(Type<kQ6_K>, uint i) { return code_place(i % 4 * 8); }

inline void fetch(device const uchar* data, uint offset, uint part, thread BlockSpan<kQ4_K>& span) {
  device const uchar* block = data + offset;
  const uint4 header = *(device const uint4*)block;
  const uint4 codes = *(device const uint4*)(block + 16 + part * 16);
  span.header = header;
  span.codes = codes;
  span.pair = part / 2;
}

inline void fetch(device const uchar* data, uint offset, uint part, thread BlockSpan<kQ5_K>& span) {
  device const uchar* block = data + offset;
  const uint4 header = *(device const uint4*)block;
  const uint4 high = *(device const uint4*)(block + 16 + part % 2 * 16);
  const uint4 codes = *(device const uint4*)(block + 48 + part * 16);
  span.header = header;
  span.high = high;
  span.codes = codes;
  span.pair = part / 2;
}

// The scales of the two units of a pair times 2^-24, from the words with their bits; or the minima, where `both` is shifted
// down by 4. units256.h describes the bits.
inline float2 six_bits(uint own, uint both, uint pair) {
  const uint shift = pair % 2 * 16;
  const uint word = own >> shift;
  const uint bytes = pair < 2 ? word & 0x3f3fu : (both >> shift & 0x0f0fu) | (word >> 2 & 0x3030u);
  return small_pair((bytes | bytes << 8) & 0x00ff00ffu);
}

inline float weigh_pair(uint4 header, uint pair, float low, float high, thread const float* totals) {
  const float2 factors = float2(as_type<half2>(header.x)) * kPairUnit;
  const float2 scales = six_bits(header.y, header.w, pair);
  const float2 minima = six_bits(header.z, header.w >> 4, pair);
  return factors.x * fma(scales.x, low, scales.y * high) -
         factors.y * fma(minima.x, totals[0], minima.y * totals[1]);
}

inline float product_of(
    device const uchar* /*data*/,
    thread const BlockSpan<kQ4_K>& span,
    thread const float* x,
    thread const float* totals) {
  float low = 0;
  float high = 0;
#pragma unroll
  for (uint i = 0; i < 16; ++i) {
    low = fma(code_at<4>(span.codes[i / 4], nibble(i)), x[i], low);
    high = fma(code_at<4>(span.codes[i / 4], nibble(16 + i)), x[16 + i], high);
  }
  return weigh_pair(span.header, span.pair, low * kCodeUnit, high * kCodeUnit, totals);
}

inline float product_of(
    device const uchar* /*data*/,
    thread const BlockSpan<kQ5_K>& span,
    thread const float* x,
    thread const float* totals) {
  float low = 0;
  float high = 0;
#pragma unroll
  for (uint i = 0; i < 4; ++i) {
    const uint word = span.codes[i];
    const uint bits = span.high[i] >> (span.pair * 2);
    low = add_bytes((word & 0x0f0f0f0fu) | (bits & 0x01010101u) << 4, x + i * 4, low);
    high = add_bytes((word >> 4 & 0x0f0f0f0fu) | (bits & 0x02020202u) << 3, x + 16 + i * 4, high);
  }
  return weigh_pair(span.header, span.pair, low * kCodeUnit, high * kCodeUnit, totals);
}

// Q6_K: eight values each of four units of a half of the block, from eight bytes of low bits of two units each and
// eight of high bits.
template <>
struct BlockSpan<kQ6_K> {
  uint2 low[2];
  uint2 high;
  uint scales;  // of the four units
  float scale;
};

inline uint column_in_block(Type<kQ6_K>, uint part, uint i) {
  return part / 4 * 128 + i / 8 * 32 + part % 4 * 8 + i % 8;
}

inline void fetch(device const uchar* data, uint offset, uint part, thread BlockSpan<kQ6_K>& span) {
  device const uchar* block = data + offset;
  device const uchar* source = block + part / 4 * 64 + part % 4 * 8;
  device const uchar* scales = block + 192 + part / 4 * 8 + part % 4 / 2;
  span.low[0] = load_octet<2>(source);
  span.low[1] = load_octet<2>(source + 32);
  span.high = load_octet<2>(block + 128 + part / 4 * 32 + part % 4 * 8);
  span.scales = uint(scales[0]) | uint(scales[2]) << 8 | uint(scales[4]) << 16 | uint(scales[6]) << 24;
  span.scale = load_half(block + 208);
}

inline float product_of(
    device const uchar* /*data*/,
    thread const BlockSpan<kQ6_K>& span,
    thread const float* x,
    thread const float* totals) {
  float sum = 0;
#pragma unroll
  for (uint unit = 0; unit < 4; ++unit) {
    const uint2 low = span.low[unit % 2] >> (unit / 2 * 4) & 0x0f0f0f0fu;
    const uint2 codes = low | (span.high >> (unit * 2) & 0x03030303u) << 4;
    float product = -32.0f / kCodeUnit * totals[unit];
    product = add_bytes(codes.x, x + unit * 8, product);
    product = add_bytes(codes.y, x + unit * 8 + 4, product);
    const int scale = int(span.scales << (24 - unit * 8)) >> 24;
    sum = fma(float(scale), product, sum);
  }
  return span.scale * kCodeUnit * sum;
}
