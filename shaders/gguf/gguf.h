// The block types of GGUF: value = code * scale, or code * scale + bias, for groups of 16 or 32 values.
// A block of `block_bytes` bytes holds `block` values; a row is its blocks, one after another.
#pragma once

#include "../common/units.h"
#include "spans.h"
#include "spans256.h"

// A matrix of blocks. Its memory starts at a multiple of the largest power of two in block_bytes, at most 16.
template <uint type, uint block, uint block_bytes>
struct Blocks {
  enum : uint {
    kSpan = kUnit,
    kTotals = type == kQ6_K ? 4 : 2,
    kAhead = 0,
    kSmall = kSmallProducts && (type == kQ4_K || type == kQ5_K || type == kQ6_K)
  };
  enum : uint { kHasBias = has_bias<type>(), kSharesScale = group_of<type>() == kUnit };
  enum : uint { kPairOffset = has_integers<type>() ? 128 + zero_of<type>() : 0 };
  typedef BlockSpan<type> Span;
  struct Octet {
    uint2 codes;
    float2 scale;
  };

  device const uchar* data;  // [rows, units * kUnit / block * block_bytes]
  uint units;
};

template <uint type, uint block, uint block_bytes>
inline device const uchar* block_of(thread const Blocks<type, block, block_bytes>& w, uint row, uint unit) {
  return w.data + (ulong(row) * w.units + unit) / (block / kUnit) * block_bytes;
}

template <uint type, uint block, uint block_bytes>
inline void fetch_codes(
    thread const Blocks<type, block, block_bytes>& w,
    uint row,
    uint unit,
    uint index,
    thread typename Blocks<type, block, block_bytes>::Octet& to) {
  to.codes = codes(Type<type>(), block_of(w, row, unit), unit % (block / kUnit), index);
}

template <uint type, uint block, uint block_bytes>
inline void fetch_scale(
    thread const Blocks<type, block, block_bytes>& w,
    uint row,
    uint unit,
    uint index,
    thread typename Blocks<type, block, block_bytes>::Octet& to) {
  to.scale = scales(Type<type>(), block_of(w, row, unit), unit % (block / kUnit), index);
}

template <uint type, uint block, uint block_bytes>
inline void decode_octet(
    thread const Blocks<type, block, block_bytes>&,
    thread const typename Blocks<type, block, block_bytes>::Octet& octet,
    uint /*index*/,
    thread float* codes) {
  decode_bytes<type>(octet.codes, codes);
}

// The bits of a small code are the mantissa of a bf16 from 128 on, whose steps are 1.
template <uint type, uint block, uint block_bytes>
inline uint code_pair(
    thread const Blocks<type, block, block_bytes>&,
    thread const typename Blocks<type, block, block_bytes>::Octet& octet,
    uint /*index*/,
    uint i) {
  return ((octet.codes.x >> (i * 8)) & 255) | ((octet.codes.y >> (i * 8)) & 255) << 16 | 0x43004300u;
}

template <uint type, uint block, uint block_bytes>
inline Blocks<type, block, block_bytes> from_row(thread const Blocks<type, block, block_bytes>& w, uint row) {
  return Blocks<type, block, block_bytes>{block_of(w, row, 0), w.units};
}

template <uint type, uint block, uint block_bytes>
inline float2 scale_of(
    thread const Blocks<type, block, block_bytes>&,
    thread const typename Blocks<type, block, block_bytes>::Octet& octet) {
  return octet.scale;
}

template <uint type, uint block, uint block_bytes>
inline bool ends_group(thread const Blocks<type, block, block_bytes>&, uint) {
  return true;
}

template <uint type, uint block, uint block_bytes>
inline void fetch_span(
    thread const Blocks<type, block, block_bytes>& w,
    uint row,
    uint span,
    thread BlockSpan<type>& to) {
  constexpr uint kParts = block / kUnit;
  fetch(w.data, (row * w.units + span) / kParts * block_bytes, span % kParts, to);
}

template <uint type, uint block, uint block_bytes>
inline uint column_of(thread const Blocks<type, block, block_bytes>&, uint span, uint i) {
  const uint part = span % (block / kUnit);
  return (span - part) * kUnit + column_in_block(Type<type>(), part, i);
}

template <uint type, uint block, uint block_bytes>
inline float place_of(thread const Blocks<type, block, block_bytes>&, uint i) {
  return place(Type<type>(), i);
}

template <uint type, uint block, uint block_bytes>
inline float dot_span(
    thread const Blocks<type, block, block_bytes>& w,
    thread const BlockSpan<type>& span,
    thread const float* x,
    thread const float* totals) {
  return product_of(w.data, span, x, totals);
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
