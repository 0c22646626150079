// Codes of compressed rows as vectors of floats. Operations that need instructions of a processor are written
// once per vector layer.
#pragma once

#include "cpu/kernels/turbo_tables.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Lane l is v[index[l]].
PYTURBO_INLINE F32 permute(F32 v, I32 index) {
#if defined(__AVX512BW__)
  return (F32)_mm512_permutexvar_ps((__m512i)index, (__m512)v);
#elif defined(__AVX2__)
  return (F32)_mm256_permutevar8x32_ps((__m256)v, (__m256i)index);
#else
  return (F32)vqtbl1q_u8((uint8x16_t)v, (uint8x16_t)(index * 0x04040404 + 0x03020100));
#endif
}

// table[index[l]] of a table of any length.
PYTURBO_INLINE F32 gather(const float* table, I32 index) {
#if defined(__AVX512BW__)
  return (F32)_mm512_i32gather_ps((__m512i)index, table, 4);
#elif defined(__AVX2__)
  return (F32)_mm256_i32gather_ps(table, (__m256i)index, 4);
#else
  return F32{table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
#endif
}

// Centroids of codes of up to 6 bits in the low bits of each lane; the higher bits do not matter.
template <uint32_t bits>
PYTURBO_INLINE F32 lookup(U32 codes) {
  const float* table = kTable<bits>.values;
#if defined(__AVX512BW__)
  if constexpr (bits <= 4) return (F32)_mm512_permutexvar_ps((__m512i)codes, _mm512_load_ps(table));
#elif defined(__AVX2__)
  if constexpr (bits <= 3) return (F32)_mm256_permutevar8x32_ps(_mm256_load_ps(table), (__m256i)codes);
  if constexpr (bits == 4) {
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(table), (__m256i)codes);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8), (__m256i)codes);
    return (F32)_mm256_blendv_ps(low, high, (__m256)(codes << 28));
  }
#else
  const auto part = [](const float* from) { return vreinterpretq_u8_f32(vld1q_f32(from)); };
  const auto bytes = [](U32 index) { return (uint8x16_t)(index * 0x04040404 + 0x03020100); };
  if constexpr (bits <= 4) {
    const uint8x16_t at = bytes(codes & ((1 << bits) - 1));
    if constexpr (bits == 2) return (F32)vqtbl1q_u8(part(table), at);
    if constexpr (bits == 3) return (F32)vqtbl2q_u8({{part(table), part(table + 4)}}, at);
    if constexpr (bits == 4)
      return (F32)vqtbl4q_u8({{part(table), part(table + 4), part(table + 8), part(table + 12)}}, at);
  }
#endif
  // The upper half of the table, and its mirror image for codes whose highest bit is 0.
  static_assert(bits <= 4 || kTable<bits>.mirrored());
  const float* upper = table + (1 << (bits - 1));
  const U32 signs = codes << (32 - bits);
  const U32 index = codes ^ ~(U32)((I32)signs >> 31);
  U32 magnitude;
#if defined(__AVX512BW__)
  magnitude = (U32)_mm512_permutex2var_ps(_mm512_load_ps(upper), (__m512i)index, _mm512_load_ps(upper + 16));
#elif defined(__AVX2__)
  const auto part = [&](uint32_t i) {
    return _mm256_permutevar8x32_ps(_mm256_load_ps(upper + 8 * i), (__m256i)index);
  };
  const __m256 odd = (__m256)(index << 28), late = (__m256)(index << 27);
  magnitude = (U32)_mm256_blendv_ps(_mm256_blendv_ps(part(0), part(1), odd),
                                    _mm256_blendv_ps(part(2), part(3), odd), late);
#else
  const auto parts = [&](uint32_t i) {
    const float* from = upper + 16 * i;
    return uint8x16x4_t{{part(from), part(from + 4), part(from + 8), part(from + 12)}};
  };
  const uint8x16_t at = bytes(index & 31);
  magnitude = (U32)vqtbx4q_u8(vqtbl4q_u8(parts(0), at), parts(1), vsubq_u8(at, vdupq_n_u8(64)));
#endif
  return (F32)(magnitude ^ (~signs & 0x80000000));
}

// The same for every width, in units of code_unit.
template <uint32_t bits>
PYTURBO_INLINE F32 centroids_of(U32 codes) {
  if constexpr (bits == 8)
    return __builtin_convertvector((I32)(codes << 24) >> 24, F32);
  else
    return lookup<bits>(codes);
}

// The first `count` <= 8 bytes of a number, the others zero. Loads of powers of two are joined in a register:
// a copy of 3 or 6 bytes goes through memory, and a load waits for its stores.
template <uint32_t count>
PYTURBO_INLINE uint64_t load_bytes(const uint8_t* from) {
  if constexpr (count == 8) return load_vector<uint64_t>(from);
  if constexpr (count >= 4) return load_vector<uint32_t>(from) | load_bytes<count - 4>(from + 4) << 32;
  if constexpr (count >= 2) return load_vector<uint16_t>(from) | load_bytes<count - 2>(from + 2) << 16;
  return count == 1 ? *from : 0;
}

// The codes of coordinates [d, d + kLanes) of a row, in the low bits of each lane; d is a multiple of kLanes.
template <uint32_t bits>
PYTURBO_INLINE U32 codes_at(const uint32_t* words, uint32_t d) {
#if defined(__ARM_NEON)
  const uint32_t at = d * bits, shift = at % 32;
  uint64_t window = words[at / 32];
  if (shift + kLanes * bits > 32) window |= uint64_t(words[at / 32 + 1]) << 32;
  const int32x4_t shifts = {0, -int(bits), -2 * int(bits), -3 * int(bits)};
  return (U32)vshlq_u32(vdupq_n_u32(uint32_t(window >> shift)), shifts);
#else
  // Each lane gets the two bytes that hold its code, then shifts it down.
  alignas(64) static constexpr struct Places {
    uint8_t bytes[kBytes];
    uint32_t shifts[kLanes];
    constexpr Places() : bytes(), shifts() {
      for (uint32_t l = 0; l < kLanes; ++l) {
        const uint32_t first = l * bits / 8, last = kLanes * bits / 8 - 1;
        bytes[4 * l] = uint8_t(first);
        bytes[4 * l + 1] = uint8_t(first < last ? first + 1 : first);
        bytes[4 * l + 2] = bytes[4 * l + 3] = 0x80;  // zero
        shifts[l] = l * bits % 8;
      }
    }
  } places;
  const uint8_t* from = reinterpret_cast<const uint8_t*>(words) + d * bits / 8;
#if defined(__AVX512BW__)
  __m512i stream;
  if constexpr (bits <= 4) {
    stream = _mm512_set1_epi64(int64_t(load_bytes<2 * bits>(from)));
  } else {
    stream = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(__mmask16((1u << (2 * bits)) - 1), from));
  }
  const __m512i pairs = _mm512_shuffle_epi8(stream, _mm512_load_si512(places.bytes));
  return (U32)_mm512_srlv_epi32(pairs, _mm512_load_si512(places.shifts));
#else
  const __m256i pairs =
      _mm256_shuffle_epi8(_mm256_set1_epi64x(int64_t(load_bytes<bits>(from))), *(const __m256i*)places.bytes);
  return (U32)_mm256_srlv_epi32(pairs, *(const __m256i*)places.shifts);
#endif
#endif
}

// Whether the codes of four vectors are looked up together, as bytes.
template <uint32_t bits>
constexpr bool kAsBytes = bits == 6 && kLanes == 8;

#if defined(__AVX2__) && !defined(__AVX512BW__)
// The bytes of the upper centroids of 6-bit codes: byte p of number 16 * part + i, in both halves.
alignas(32) inline constexpr struct CentroidBytes {
  uint8_t values[4][2][32];
  constexpr CentroidBytes() : values() {
    for (uint32_t i = 0; i < 32; ++i)
      for (uint32_t p = 0; p < 4; ++p)
        values[p][i / 16][i % 16] = values[p][i / 16][i % 16 + 16] =
            uint8_t(__builtin_bit_cast(uint32_t, kTable<6>.values[32 + i]) >> (8 * p));
  }
} kCentroidBytes;

// The centroids of 6-bit codes in bytes. Vector i gets those of bytes 4 i to 4 i + 3 of each half. Four
// lookups of bytes and their interleaving take fewer instructions than four of floats in a table this long.
PYTURBO_INLINE void look_up_bytes(__m256i codes, F32* vectors) {
  static_assert(kTable<6>.mirrored());
  const auto all = [](int value) { return _mm256_set1_epi8(char(value)); };
  const __m256i lower = _mm256_cmpgt_epi8(all(32), codes);
  const __m256i index = codes ^ all(32) ^ (lower & all(63));  // of the number in the upper half
  // Bit 7 makes a byte zero, so that one of two lookups does.
  const __m256i first = _mm256_add_epi8(index, all(0x70)), second = _mm256_sub_epi8(index, all(16));
  __m256i bytes[4];
#pragma GCC unroll 4
  for (uint32_t p = 0; p < 4; ++p) {
    const auto part = [&](uint32_t i, __m256i at) {
      return _mm256_shuffle_epi8(_mm256_load_si256((const __m256i*)kCentroidBytes.values[p][i]), at);
    };
    bytes[p] = part(0, first) | part(1, second);
  }
  bytes[3] |= lower & all(0x80);
  const __m256i low[2] = {_mm256_unpacklo_epi8(bytes[0], bytes[1]), _mm256_unpackhi_epi8(bytes[0], bytes[1])};
  const __m256i high[2] = {_mm256_unpacklo_epi8(bytes[2], bytes[3]),
                           _mm256_unpackhi_epi8(bytes[2], bytes[3])};
#pragma GCC unroll 2
  for (uint32_t i = 0; i < 2; ++i) {
    vectors[2 * i] = (F32)_mm256_unpacklo_epi16(low[i], high[i]);
    vectors[2 * i + 1] = (F32)_mm256_unpackhi_epi16(low[i], high[i]);
  }
}

// The centroids of codes in the low bits of each lane of four vectors.
PYTURBO_INLINE void look_up_words(U32 a, U32 b, U32 c, U32 d, F32* vectors) {
  const auto packed = [](U32 x, U32 y) { return _mm256_packus_epi32((__m256i)(x & 63), (__m256i)(y & 63)); };
  look_up_bytes(_mm256_packus_epi16(packed(a, b), packed(c, d)), vectors);
}

// The 16 centroids of 12 bytes of a row, then those of another row.
PYTURBO_INLINE void look_up_rows(const uint8_t* a, const uint8_t* b, F32* vectors) {
  const auto load = [](const uint8_t* from) {
    return _mm_insert_epi32(_mm_loadl_epi64((const __m128i*)from), load_vector<int32_t>(from + 8), 2);
  };
  const __m128i three = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  const U32 four =
      (U32)_mm256_shuffle_epi8(_mm256_set_m128i(load(b), load(a)), _mm256_broadcastsi128_si256(three));
  const U32 codes = (four & 0x3f) | (four << 2 & 0x3f00) | (four << 4 & 0x3f0000) | (four << 6 & 0x3f000000);
  F32 parts[4];
  look_up_bytes((__m256i)codes, parts);
#pragma GCC unroll 2
  for (uint32_t i = 0; i < 2; ++i) {
    const __m256 first = (__m256)parts[2 * i], second = (__m256)parts[2 * i + 1];
    vectors[i] = (F32)_mm256_permute2f128_ps(first, second, 0x20);
    vectors[2 + i] = (F32)_mm256_permute2f128_ps(first, second, 0x31);
  }
}
#endif

// Coordinates [d, d + kLanes) of a row in units of its scale and code_unit.
template <uint32_t bits>
PYTURBO_INLINE F32 centroids_at(const uint32_t* words, uint32_t d) {
  if constexpr (bits == 8)
    return load_floats(reinterpret_cast<const int8_t*>(words) + d);
  else
    return lookup<bits>(codes_at<bits>(words, d));
}

// The codes of a row from a column on, as cache_rows.h reads them.
template <uint32_t bits>
struct CodedRow {
  const uint32_t* words;
  uint32_t column;

  CodedRow operator+(uint32_t columns) const { return {words, column + columns}; }
};

template <uint32_t bits>
PYTURBO_INLINE F32 load_floats(CodedRow<bits> from) {
  return centroids_at<bits>(from.words, from.column);
}

// The code of the centroid nearest to each lane, in units of code_unit; 0 for NaN. Those of 8 bits are
// signed.
template <uint32_t bits>
PYTURBO_INLINE I32 nearest(F32 x) {
  I32 index = {};  // how many boundaries are below
  if constexpr (bits == 8) {
    return to_nearest(x) & (x == x);
  } else if constexpr (bits <= 4) {
    for (uint32_t i = 0; i + 1 < 1u << bits; ++i) index -= x > kTable<bits>.boundaries[i];
  } else {
    for (int32_t step = 1 << (bits - 1); step > 0; step >>= 1)
      index += (x > gather(kTable<bits>.boundaries, index + (step - 1))) & step;
  }
  return index;
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
