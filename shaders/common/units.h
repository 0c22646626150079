// Quantised matrices are read in units of 32 consecutive values of a row, `bits` words for every width.
// A format is a struct with `units`, how many a row has, and the functions that rows.h and tile.h call:
//   float dot_unit(w, row, unit, x, total)                 the unit times x [32], whose sum is `total`
//   void dequantize_octet(w, row, unit, index, values)     eight values of the unit
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

// Reads the words of a unit, 128 bits at a time where its size allows.
template <uint bits>
inline void load_words(device const uint* source, thread uint* words) {
  if (bits % 4 == 0) {
#pragma unroll
    for (uint i = 0; i < bits; i += 4) {
      const uint4 v = uint4(((device const packed_uint4*)source)[i / 4]);
      words[i] = v.x;
      words[i + 1] = v.y;
      words[i + 2] = v.z;
      words[i + 3] = v.w;
    }
  } else {
#pragma unroll
    for (uint i = 0; i < bits; ++i) words[i] = source[i];
  }
}
