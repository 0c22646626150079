// Codes of compressed rows as operands of NVIDIA's matrix units. Centroids are halves, so the units hold them exactly.
#pragma once

#include "../../common/cuda/matrix_units.h"

// Centroids by codes of up to 6 bits, twice in a word, or by pairs of codes. Each lane has a copy in a bank of its own.
template <uint bits, bool pairs>
struct CentroidTable {
  static constexpr uint kEntries = 1u << (pairs ? 2 * bits : bits), kWords = kEntries * 32;

  static void fill(uint* table, uint tid, uint threads) {
    const float* values = centroids(bits);
    for (uint entry = tid; entry < kEntries; entry += threads) {
      const uint code = entry % (1u << bits), other = pairs ? entry >> bits : code;
      const uint word = MatrixUnits<half>::pair(values[code], values[other]);
#pragma unroll
      for (uint i = 0; i < 8; ++i)  // threads begin with different banks
        reinterpret_cast<uint4*>(table)[entry * 8 + (i + tid) % 8] = uint4{word, word, word, word};
    }
  }

  const uint* table;
  uint lane_bytes;  // where the lane's copy is in an entry

  // The entry that `shift` low bits precede in x; bits above it are ignored.
  uint entry(uint x, uint shift) const {
    constexpr uint kMask = (kEntries - 1) << 7;
    const uint offset = ((shift < 7 ? x << (7 - shift) : x >> (shift - 7)) & kMask) | lane_bytes;
    return *reinterpret_cast<const uint*>(reinterpret_cast<const uchar*>(table) + offset);
  }
};

// Codes of 8 bits have no table.
template <bool pairs>
struct CentroidTable<8, pairs> {
  static constexpr uint kWords = 0;

  static void fill(uint*, uint, uint) {}

  const uint* table;
  uint lane_bytes;
};

// The centroids of two neighbouring 8-bit codes of four, from the first or the third on.
inline uint centroids_of_bytes(uint codes, uint first) {
  // A byte b after 0x64 is the half 1024 + b; (1024 + 128 + steps) / 64 - 18 is exact.
  const uint halves = ::__byte_perm(codes ^ 0x80808080u, 0x64646464u, first == 0 ? 0x4140 : 0x4342);
  uint values;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(values) : "r"(halves), "r"(0x24002400u), "r"(0xcc80cc80u));
  return values;
}

// `count` codes of a row, the first in the lowest bits of words[0].
template <uint bits, uint count>
struct Codes {
  static constexpr uint kWords = (count * bits + 31) / 32;

  uint words[kWords];

  // Codes from `first` on, a multiple of count; any after the end of the row. Rows that are wide are aligned to 16 bytes,
  // and have all the codes.
  template <bool wide>
  void load(const uint* row, uint first, uint dim) {
    if constexpr (wide && count * bits % 64 == 0) {
      constexpr uint kVector = kWords % 4 == 0 ? 4 : 2;
#pragma unroll
      for (uint i = 0; i < kWords; i += kVector) {
        const vec<uint, kVector> part =
            *reinterpret_cast<const vec<uint, kVector>*>(row + first * bits / 32 + i);
#pragma unroll
        for (uint c = 0; c < kVector; ++c) words[i + c] = part[c];
      }
    } else {
      const uint word = first * bits / 32, end = row_words(dim, bits);
#pragma unroll
      for (uint i = 0; i < kWords; ++i) words[i] = row[min(word + i, end - 1)];
      if constexpr (count * bits % 32 != 0) {
        const uint shift = first * bits % 32, last = row[min(word + kWords, end - 1)];
#pragma unroll
        for (uint i = 0; i < kWords; ++i)
          words[i] = ::__funnelshift_r(words[i], i + 1 < kWords ? words[i + 1] : last, shift);
      }
    }
  }

  // The centroids of codes i, which is even, and i + 1.
  template <bool pairs>
  uint neighbours(const CentroidTable<bits, pairs>& table, uint i) const {
    if constexpr (bits == 8) {
      return centroids_of_bytes(words[i / 4], i % 4);
    } else if constexpr (pairs) {
      return entry(table, i, 2 * bits);
    } else {
      return ::__byte_perm(entry(table, i, bits), entry(table, i + 1, bits), 0x5410);
    }
  }

  // The centroids of code i here and in another row.
  template <bool pairs>
  uint of_both(const CentroidTable<bits, pairs>& table, const Codes& other, uint i) const {
    if constexpr (bits == 8) {
      const uint merged = ::__byte_perm(words[i / 4], other.words[i / 4], i % 4 < 2 ? 0x5140 : 0x7362);
      return centroids_of_bytes(merged, i % 2 * 2);
    } else if constexpr (!pairs) {
      return ::__byte_perm(entry(table, i, bits), other.entry(table, i, bits), 0x5410);
    } else if constexpr (32 % (2 * bits) == 0) {
      // Codes of this row in the places of even codes, of the other row in those of odd ones.
      constexpr uint kEven = bits == 2 ? 0x33333333u : 0x0f0f0f0fu;
      const uint own = words[i * bits / 32], others = other.words[i * bits / 32];
      const uint merged = i % 2 == 0 ? (own & kEven) | ((others << bits) & ~kEven)
                                     : ((own >> bits) & kEven) | (others & ~kEven);
      return table.entry(merged, i / 2 * 2 * bits % 32);
    } else {
      return table.entry(field(i, bits) % (1u << bits) | other.field(i, bits) << bits, 0);
    }
  }

 private:
  // The bits from code i on, at least `width` of them.
  uint field(uint i, uint width) const {
    const uint word = i * bits / 32, shift = i * bits % 32;
    return shift + width <= 32 ? words[word] >> shift
                               : ::__funnelshift_r(words[word], words[min(word + 1, kWords - 1)], shift);
  }

  template <bool pairs>
  uint entry(const CentroidTable<bits, pairs>& table, uint i, uint width) const {
    const uint word = i * bits / 32, shift = i * bits % 32;
    return shift + width <= 32 ? table.entry(words[word], shift) : table.entry(field(i, width), 0);
  }
};

inline float largest_of(float4 x) { return max(max(abs(x.x), abs(x.y)), max(abs(x.z), abs(x.w))); }

// Two values as terms. Infinities are in the first; the others are finite.
inline PairTerms finite_terms(float first, float second) {
  PairTerms terms = terms_of<half>(first, second);
  if (!MatrixUnits<half>::is_finite(terms.high)) terms.low = 0;
  return terms;
}

// The least power of two that is not below x, within a range whose reciprocals are normal.
inline float power_above(float x) {
  return as_type<float>(clamp((as_type<uint>(x) + 0x7fffffu) >> 23, 27u, 253u) << 23);
}

// 1 / x of a power of two.
inline float reciprocal_of_power(float x) { return as_type<float>(0x7f000000u - as_type<uint>(x)); }
