// Matrices are read in units of 32 consecutive values of a row: quantised ones, `bits` words for every width, and those
// that are not, whose codes are their values.
// A format is a struct with `units`, how many a row has, and what tile.h needs:
//   Octet                                      the codes and the scale of eight values of a unit, in registers
//   void fetch_codes(w, row, unit, index, to)  loads the codes
//   void fetch_scale(w, row, unit, index, to)  loads scale and bias
//   void decode_octet(w, octet, index, codes)  the codes as floats, which bf16 holds exactly
//   kBits                                      where codes are a stream of words: the bits of one
//   kPairOffset                                0, or there is code_pair
//   uint code_pair(w, octet, index, i)         codes i and i + 4, each plus kPairOffset, as the two bf16 of a word; also
//                                              where weights are bf16 themselves
//   W from_row(w, row)                         the matrix of the rows from this one on
//   float2 scale_of(w, octet)                  scale and bias: value = code * scale + bias
//   kHasBias                                   whether there is a bias
//   kSharesScale                               whether all values of a unit have one scale and bias
//   bool ends_group(w, unit)                   if so, whether the next unit has others
// For rows.h it has spans of kSpan values of a row, 4 to 32, which a lane multiplies at once:
//   Span                                    the codes and scales of a span, in registers
//   kTotals                                 the parts of a span, 1, 2 or 4, of which dot_span needs the sums of x
//   void fetch_span(w, row, span, to)       asks for them; the row is one of the first four
//   kAhead                                  whether a lane asks for its next span before it uses this one
//   kSmall                                  whether codes are as small as small_codes.h says
//   uint column_of(w, span, i)              the column of value i of a span; four from a multiple of 4 on are neighbours
//   float place_of(w, i)                    what value i of x is multiplied with before dot_span
//   float dot_span(w, span, x, totals)      the span times x; totals are the sums of x in each part, before place_of
#pragma once

#include <metal_stdlib>
using namespace metal;

constexpr constant uint kUnit = 32;   // values of a unit
constexpr constant uint kOctet = 8;   // values of a quarter of a unit: `bits` bytes
constexpr constant uint kOctets = 4;  // octets of a unit

// The words of eight consecutive values of a unit, which span at most two.
// Words is a pointer to the unit, in device or thread memory.
template <uint bits, typename Words>
inline uint2 octet_words(Words words, uint index) {
  const uint word = index * bits / 4;
  return uint2(words[word], words[min(word + 1, bits - 1)]);
}

// The bits of the eight values, the first in the lowest.
template <uint bits>
inline ulong octet_bits(uint2 words, uint index) {
  return ((ulong(words.y) << 32) | words.x) >> (index * bits % 4 * 8);
}

// Code i of an octet.
template <uint bits>
inline uint code_of(ulong packed, uint i) {
  return uint(packed >> (i * bits)) & ((1u << bits) - 1);
}

// Reads `count` words. The source is aligned to 16 bytes if count is a multiple of 4, to 8 if it is one of 2.
template <uint count>
inline void load_words(device const uint* source, thread uint* words) {
  if (count % 4 == 0) {
#pragma unroll
    for (uint i = 0; i < count; i += 4) {
      const uint4 v = *(device const uint4*)(source + i);
      words[i] = v.x;
      words[i + 1] = v.y;
      words[i + 2] = v.z;
      words[i + 3] = v.w;
    }
  } else if (count % 2 == 0) {
#pragma unroll
    for (uint i = 0; i < count; i += 2) {
      const uint2 v = *(device const uint2*)(source + i);
      words[i] = v.x;
      words[i + 1] = v.y;
    }
  } else {
#pragma unroll
    for (uint i = 0; i < count; ++i) words[i] = source[i];
  }
}

// An integer below 2^23 as a float. Its bits are the mantissa of a number whose steps are 1.
inline float small_float(uint value) { return as_type<float>(0x4b000000u | value) - 8388608.0f; }

// The eight values of an octet.
template <typename W>
inline void expand_octet(
    thread const W& w,
    thread const typename W::Octet& octet,
    uint index,
    thread float* values) {
  const float2 scale = scale_of(w, octet);
  decode_octet(w, octet, index, values);
#pragma unroll
  for (uint i = 0; i < kOctet; ++i)
    values[i] = W::kHasBias ? fma(values[i], scale.x, scale.y) : values[i] * scale.x;
}

// The eight values of an octet of a unit.
template <typename W>
inline void dequantize_octet(thread const W& w, uint row, uint unit, uint index, thread float* values) {
  typename W::Octet octet;
  fetch_codes(w, row, unit, index, octet);
  fetch_scale(w, row, unit, index, octet);
  expand_octet(w, octet, index, values);
}
