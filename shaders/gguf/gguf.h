// The block types of GGUF: value = code * scale, or code * scale + bias, for groups of 16 or 32 values.
// A block of `block_bytes` bytes holds `block` values; a row is its blocks, one after another.
#pragma once

#include "../common/units.h"
#include "units256.h"
#include "units32.h"

// A matrix of blocks. Its memory starts at a multiple of the largest power of two in block_bytes, at most 4.
template <uint type, uint block, uint block_bytes>
struct Blocks {
  enum : uint { kSpan = kUnit };
  struct Span {
    device const uchar* source;
    uint part;
  };

  device const uchar* data;  // [rows, units * kUnit / block * block_bytes]
  uint units;
};

template <uint type, uint block, uint block_bytes>
inline device const uchar* block_of(thread const Blocks<type, block, block_bytes>& w, uint row, uint unit) {
  return w.data + (ulong(row) * w.units + unit) / (block / kUnit) * block_bytes;
}

// The values of eight codes.
template <uint type>
inline void decode_octet(uint2 bytes, thread float* values) {
#pragma unroll
  for (uint i = 0; i < kOctet / 2; ++i) {
    values[i] = decode<type>((bytes.x >> (i * 8)) & 255);
    values[kOctet / 2 + i] = decode<type>((bytes.y >> (i * 8)) & 255);
  }
}

// The eight values of an octet of a unit.
template <uint type, uint block, uint block_bytes>
inline void dequantize_octet(
    thread const Blocks<type, block, block_bytes>& w,
    uint row,
    uint unit,
    uint index,
    thread float* values) {
  device const uchar* source = block_of(w, row, unit);
  const uint part = unit % (block / kUnit);
  const float2 scale = scales(Type<type>(), source, part, index);
  decode_octet<type>(codes(Type<type>(), source, part, index), values);
  for (uint i = 0; i < kOctet; ++i)
    values[i] = has_bias<type>() ? fma(values[i], scale.x, scale.y) : values[i] * scale.x;
}

// A span is a unit, which dot_span reads where it lies.
template <uint type, uint block, uint block_bytes>
inline void fetch_span(
    thread const Blocks<type, block, block_bytes>& w,
    uint row,
    uint span,
    thread typename Blocks<type, block, block_bytes>::Span& to) {
  to.source = block_of(w, row, span);
  to.part = span % (block / kUnit);
}

template <uint type, uint block, uint block_bytes>
inline uint column_of(thread const Blocks<type, block, block_bytes>&, uint span, uint i) {
  return span * kUnit + i;
}

template <uint type, uint block, uint block_bytes>
inline float place_of(thread const Blocks<type, block, block_bytes>&, uint) {
  return 1.0f;
}

// scale * dot(code, x) + bias * sum(x) for each of its groups.
template <uint type, uint block, uint block_bytes>
inline float dot_span(
    thread const Blocks<type, block, block_bytes>&,
    thread const typename Blocks<type, block, block_bytes>::Span& span,
    thread const float* x,
    thread const float* totals) {
  float sum = 0;
#pragma unroll
  for (uint first = 0; first < kUnit; first += group_of<type>()) {
    float dot = 0;
#pragma unroll
    for (uint octet = first; octet < first + group_of<type>(); octet += kOctet) {
      float values[kOctet];
      decode_octet<type>(codes(Type<type>(), span.source, span.part, octet / kOctet), values);
#pragma unroll
      for (uint i = 0; i < kOctet; ++i) dot = fma(values[i], x[octet + i], dot);
    }
    const float2 scale = scales(Type<type>(), span.source, span.part, first / kOctet);
    sum = fma(scale.x, dot, sum);
    if (has_bias<type>())
      sum = fma(scale.y, group_of<type>() == kUnit ? totals[0] + totals[1] : totals[first / 16], sum);
  }
  return sum;
}

// One instance of a kernel per type.
#define INSTANTIATE_GGUF_AS(op, type, block, bytes, name) \
  template [[host_name(#op "_" #name)]] kernel decltype(op<type, block, bytes>) op<type, block, bytes>;
#define INSTANTIATE_GGUF(op)                    \
  INSTANTIATE_GGUF_AS(op, 2, 32, 18, q4_0)      \
  INSTANTIATE_GGUF_AS(op, 3, 32, 20, q4_1)      \
  INSTANTIATE_GGUF_AS(op, 6, 32, 22, q5_0)      \
  INSTANTIATE_GGUF_AS(op, 7, 32, 24, q5_1)      \
  INSTANTIATE_GGUF_AS(op, 8, 32, 34, q8_0)      \
  INSTANTIATE_GGUF_AS(op, 10, 256, 84, q2_k)    \
  INSTANTIATE_GGUF_AS(op, 11, 256, 110, q3_k)   \
  INSTANTIATE_GGUF_AS(op, 12, 256, 144, q4_k)   \
  INSTANTIATE_GGUF_AS(op, 13, 256, 176, q5_k)   \
  INSTANTIATE_GGUF_AS(op, 14, 256, 210, q6_k)   \
  INSTANTIATE_GGUF_AS(op, 20, 32, 18, iq4_nl)   \
  INSTANTIATE_GGUF_AS(op, 23, 256, 136, iq4_xs) \
  INSTANTIATE_GGUF_AS(op, 39, 32, 17, mxfp4)
