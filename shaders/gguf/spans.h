// The spans of a block that rows.h multiplies with 32 values of x, one for each unit of the block.
//   fetch(data, offset, part, span)         asks for the codes and scales of span `part` of the block at data[offset]
//   column_in_block(type, part, i)          the column of its value i
//   place(type, i)                          what value i of x is multiplied with before
//   product_of(data, span, x, totals)       the span times x
// Here a span is a unit, which product_of reads where it lies; spans256.h has those that are held in registers.
#pragma once

#include "../common/units.h"
#include "units256.h"
#include "units32.h"

template <uint type>
struct BlockSpan {
  uint offset;
  uint part;
};

// The values of eight codes.
template <uint type>
inline void decode_bytes(uint2 bytes, thread float* values) {
#pragma unroll
  for (uint i = 0; i < kOctet / 2; ++i) {
    values[i] = decode<type>((bytes.x >> (i * 8)) & 255);
    values[kOctet / 2 + i] = decode<type>((bytes.y >> (i * 8)) & 255);
  }
}

template <uint type>
inline void fetch(device const uchar* /*data*/, uint offset, uint part, thread BlockSpan<type>& span) {
  span.offset = offset;
  span.part = part;
}

template <uint type>
inline uint column_in_block(Type<type>, uint part, uint i) {
  return part * kUnit + i;
}

template <uint type>
inline float place(Type<type>, uint) {
  return 1.0f;
}

// scale * dot(code, x) + bias * sum(x) for each group of the unit.
template <uint type>
inline float product_of(
    device const uchar* data,
    thread const BlockSpan<type>& span,
    thread const float* x,
    thread const float* totals) {
  float sum = 0;
#pragma unroll
  for (uint first = 0; first < kUnit; first += group_of<type>()) {
    float product = 0;
#pragma unroll
    for (uint octet = first; octet < first + group_of<type>(); octet += kOctet) {
      float values[kOctet];
      decode_bytes<type>(codes(Type<type>(), data + span.offset, span.part, octet / kOctet), values);
#pragma unroll
      for (uint i = 0; i < kOctet; ++i) product = fma(values[i], x[octet + i], product);
    }
    const float2 scale = scales(Type<type>(), data + span.offset, span.part, first / kOctet);
    sum = fma(scale.x, product, sum);
    if (has_bias<type>())
      sum = fma(scale.y, group_of<type>() == kUnit ? totals[0] + totals[1] : totals[first / 16], sum);
  }
  return sum;
}
