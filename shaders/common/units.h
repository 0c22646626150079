// Quantised matrices are read in units of 32 consecutive values of a row, `bits` words for every width.
// A format is a struct with `units`, how many a row has, and a function for tile.h:
//   void dequantize_octet(w, row, unit, index, values)    eight values of a unit
// For rows.h it has spans of kSpan values of a row, 16 or 32, which a lane multiplies at once:
//   Span                                    the codes and scales of a span, in registers
//   kTotals                                 the parts of a span, 1, 2 or 4, of which dot_span needs the sums of x
//   void fetch_span(w, row, span, to)       asks for them
//   kAhead                                  whether a lane asks for its next span before it uses this one
//   uint column_of(w, span, i)              the column of value i of a span; four from a multiple of 4 on are neighbours
//   float place_of(w, i)                    what value i of x is multiplied with before dot_span
//   float dot_span(w, span, x, totals)      the span times x; totals are the sums of x in each part, before place_of
#pragma once

#include <metal_stdlib>
using namespace metal;

constexpr constant uint kUnit = 32;   // values of a unit
constexpr constant uint kOctet = 8;   // values of a quarter of a unit: `bits` bytes
constexpr constant uint kOctets = 4;  // octets of a unit

// The bits of eight consecutive values of a unit, the first in the lowest; they span at most two words.
// Words is a pointer to the unit, in device or thread memory.
template <uint bits, typename Words>
inline ulong octet(Words words, uint index) {
  const uint byte = index * bits;
  const uint word = byte / 4;
  const uint next = min(word + 1, bits - 1);
  return ((ulong(words[next]) << 32) | words[word]) >> (byte % 4 * 8);
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
