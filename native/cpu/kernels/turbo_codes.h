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

// Whether `lookup` has room for a table of centroids in registers. Codes of a larger table are looked up one
// by one: no processor gathers much faster, and many gather far slower.
template <uint32_t bits>
constexpr bool kInRegisters = bits < 8 || kLanes == 16;

// Lane l is the centroid of the 8-bit code(l).
template <typename Code>
PYTURBO_INLINE F32 look_up_each(const Code& code) {
  const float* table = kTable<8>.values;
#if defined(__AVX2__) && !defined(__AVX512BW__)
  // Broadcasts from memory and blends need no shuffles, which are scarce.
  const auto at = [&](uint32_t l) { return _mm256_broadcast_ss(table + code(l)); };
  const auto pair = [&](uint32_t l) { return _mm256_blend_ps(at(l), at(l + 1), 0xaa); };
  const __m256 low = _mm256_blend_ps(pair(0), pair(2), 0xcc), high = _mm256_blend_ps(pair(4), pair(6), 0xcc);
  return (F32)_mm256_blend_ps(low, high, 0xf0);
#else
  F32 v = {};
  for (uint32_t l = 0; l < kLanes; ++l) v[l] = table[code(l)];
  return v;
#endif
}

// Centroids of codes in the low bits of each lane; the higher bits do not matter.
template <uint32_t bits>
PYTURBO_INLINE F32 lookup(U32 codes) {
  const float* table = kTable<bits>.values;
  if constexpr (!kInRegisters<bits>) return gather(table, (I32)(codes & ((1 << bits) - 1)));
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
  const auto part = [&](uint32_t i) {
    const float* from = upper + 32 * i;
    return _mm512_permutex2var_ps(_mm512_load_ps(from), (__m512i)index, _mm512_load_ps(from + 16));
  };
  if constexpr (bits == 6) {
    magnitude = (U32)part(0);
  } else {
    const __mmask16 odd = _mm512_test_epi32_mask((__m512i)index, _mm512_set1_epi32(32));
    const __mmask16 late = _mm512_test_epi32_mask((__m512i)index, _mm512_set1_epi32(64));
    magnitude = (U32)_mm512_mask_blend_ps(late, _mm512_mask_blend_ps(odd, part(0), part(1)),
                                          _mm512_mask_blend_ps(odd, part(2), part(3)));
  }
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
    uint64_t bytes = 0;
    std::memcpy(&bytes, from, 2 * bits);
    stream = _mm512_set1_epi64(int64_t(bytes));
  } else {
    stream = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(__mmask16((1u << (2 * bits)) - 1), from));
  }
  const __m512i pairs = _mm512_shuffle_epi8(stream, _mm512_load_si512(places.bytes));
  return (U32)_mm512_srlv_epi32(pairs, _mm512_load_si512(places.shifts));
#else
  uint64_t bytes = 0;
  std::memcpy(&bytes, from, bits);
  const __m256i pairs =
      _mm256_shuffle_epi8(_mm256_set1_epi64x(int64_t(bytes)), *(const __m256i*)places.bytes);
  return (U32)_mm256_srlv_epi32(pairs, *(const __m256i*)places.shifts);
#endif
#endif
}

// Coordinates [d, d + kLanes) of a row in units of its scale.
template <uint32_t bits>
PYTURBO_INLINE F32 centroids_at(const uint32_t* words, uint32_t d) {
  if constexpr (kInRegisters<bits>) {
    return lookup<bits>(codes_at<bits>(words, d));
  } else {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(words) + d;
    return look_up_each([=](uint32_t l) { return codes[l]; });
  }
}

// How many boundaries are below each lane; 0 for NaN.
template <uint32_t bits>
PYTURBO_INLINE I32 nearest(F32 x) {
  const float* boundaries = kTable<bits>.boundaries;
  I32 index = {};
  if constexpr (bits <= 4) {
    for (uint32_t i = 0; i + 1 < 1u << bits; ++i) index -= x > boundaries[i];
  } else {
    for (int32_t step = 1 << (bits - 1); step > 0; step >>= 1)
      index += (x > gather(boundaries, index + (step - 1))) & step;
  }
  return index;
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
