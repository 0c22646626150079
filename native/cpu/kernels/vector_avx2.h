// AVX2 with FMA and F16C: vectors of 32 bytes. With AVX-VNNI where the level has it, else without.
#pragma once

#include <immintrin.h>

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kBytes = 32;
constexpr uint32_t kLanes = 8;          // 32-bit values of a vector
constexpr uint32_t kTileTokens = 6;     // tokens whose sums in f32 stay in registers
constexpr uint32_t kIntegerTokens = 4;  // tokens whose integer sums do
constexpr uint32_t kPlanesAtOnce = 1;   // planes of bytes whose sums do, with those of four tokens
constexpr bool kSignedWeights = false;
#if defined(__AVXVNNI__)
constexpr bool kDotsInPairs = false;  // whether `dot` adds products of codes below 64 in pairs
#else
constexpr bool kDotsInPairs = true;
#endif

typedef float F32 __attribute__((vector_size(32)));
typedef int32_t I32 __attribute__((vector_size(32)));
typedef uint32_t U32 __attribute__((vector_size(32)));
typedef uint16_t U16 __attribute__((vector_size(32)));
typedef uint8_t U8 __attribute__((vector_size(32)));
typedef int8_t S8 __attribute__((vector_size(32)));
typedef uint16_t U16Half __attribute__((vector_size(16)));  // kLanes 16-bit values
typedef int8_t S8Quarter __attribute__((vector_size(8)));   // kLanes 8-bit values

// Keeps v in a register, so that a value that is used twice is read once.
PYTURBO_INLINE U8 held(U8 v) {
  asm("" : "+x"(v));
  return v;
}

// Sums that go through this are added to in turns, so that none waits for itself.
PYTURBO_INLINE I32 in_turn(I32 v) {
  asm volatile("" : "+x"(v));
  return v;
}

PYTURBO_INLINE F32 splat(float value) { return (F32)_mm256_set1_ps(value); }
PYTURBO_INLINE F32 fused(F32 a, F32 b, F32 c) {
  return (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
PYTURBO_INLINE F32 larger(F32 a, F32 b) { return (F32)_mm256_max_ps((__m256)a, (__m256)b); }
PYTURBO_INLINE F32 from_half(U16Half v) { return (F32)_mm256_cvtph_ps((__m128i)v); }
PYTURBO_INLINE F32 from_bfloat(U16Half v) {
  return (F32)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)v), 16);
}
PYTURBO_INLINE U16Half to_half(F32 v) {
  return (U16Half)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
PYTURBO_INLINE I32 to_nearest(F32 v) { return (I32)_mm256_cvtps_epi32((__m256)v); }  // ties to even

PYTURBO_INLINE float sum(F32 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
PYTURBO_INLINE int32_t sum(I32 v) {
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
PYTURBO_INLINE int32_t largest(I32 v) {
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  const __m128i two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 1)));
}

// table[index] of up to kLanes floats.
PYTURBO_INLINE F32 pick(const float* table, I32 index) {
  return (F32)_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
}

// The lanes of v that `index` names.
PYTURBO_INLINE F32 pick(F32 v, I32 index) { return (F32)_mm256_permutevar8x32_ps((__m256)v, (__m256i)index); }

// The same in the lanes of `where`, and those of `others` in the others.
PYTURBO_INLINE U32 pick_where(I32 where, U32 v, I32 index, U32 others) {
  return where ? (U32)pick((F32)v, index) : others;
}

// Two floats, four times.
PYTURBO_INLINE F32 repeat_floats(const float* from) { return (F32)_mm256_broadcast_sd((const double*)from); }

// The low 16 bits of each word.
PYTURBO_INLINE U16Half lower_halves(U32 words) { return __builtin_convertvector(words, U16Half); }

// kLanes signed bytes, each as 16 bits.
PYTURBO_INLINE U16Half widen(const void* from) {
  return (U16Half)_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i*)from));
}

// The same as 32 bits.
PYTURBO_INLINE I32 widen_twice(const void* from) {
  return (I32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from));
}

// Twice as many signed bytes as 16 bits, and the halves of such a vector.
PYTURBO_INLINE U16 widen_two(const void* from) {
  return (U16)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
}
PYTURBO_INLINE U16Half low_half(U16 v) { return (U16Half)_mm256_castsi256_si128((__m256i)v); }
PYTURBO_INLINE U16Half high_half(U16 v) { return (U16Half)_mm256_extracti128_si256((__m256i)v, 1); }

// Twice 16 bytes, at a distance of `step` bytes, or the same ones where `count` is 1.
PYTURBO_INLINE U8 load_pieces(const uint8_t* from, uint64_t step, uint32_t count) {
  return (U8)_mm256_loadu2_m128i((const __m128i*)(from + (count - 1) * step), (const __m128i*)from);
}

// The same with 32 bytes each: both first halves, then both second halves.
PYTURBO_INLINE void load_runs(const uint8_t* from, uint64_t step, uint32_t count, U8* halves) {
  const __m256i first = _mm256_loadu_si256((const __m256i*)from);
  const __m256i second = _mm256_loadu_si256((const __m256i*)(from + (count - 1) * step));
  halves[0] = (U8)_mm256_permute2x128_si256(first, second, 0x20);
  halves[1] = (U8)_mm256_permute2x128_si256(first, second, 0x31);
}

// The same 16 bytes everywhere.
PYTURBO_INLINE U8 repeat_piece(const uint8_t* from) {
  return (U8)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)from));
}

// The low nibbles of 16 bytes, then their high nibbles.
PYTURBO_INLINE U8 split_nibbles(const uint8_t* from) {
  const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)from));
  const __m256i counts = _mm256_setr_epi64x(0, 0, 4, 4);
  return (U8)_mm256_and_si256(_mm256_srlv_epi64(both, counts), _mm256_set1_epi8(15));
}

// kLanes words at distances of `stride` bytes, or the `count` there are and zeros.
template <int stride>
PYTURBO_INLINE U32 gather_words(const uint8_t* from, uint32_t count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count < kLanes ? count : kLanes)), lanes);
  return (U32)_mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int*)from,
                                          _mm256_mullo_epi32(lanes, _mm256_set1_epi32(stride)), some, 1);
}

// `value` where a bit is set, else 0: bit i for byte i.
PYTURBO_INLINE U8 where_set(uint32_t bits, uint8_t value) {
  const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
  const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(int32_t(bits)), byte), bit);
  return (U8)_mm256_and_si256(_mm256_cmpeq_epi8(own, bit), _mm256_set1_epi8(char(value)));
}

// `value` where a byte has the bit of another, else 0.
PYTURBO_INLINE U8 where_bit(U8 bytes, U8 bit, uint8_t value) { return (U8)((bytes & bit) == bit) & value; }

// 16 bytes, each as 32 bits, in 16 / kLanes vectors.
PYTURBO_INLINE void widen_all(U8x16 v, I32* words) {
  words[0] = (I32)_mm256_cvtepu8_epi32((__m128i)v);
  words[1] = (I32)_mm256_cvtepu8_epi32(_mm_srli_si128((__m128i)v, 8));
}

// table[index] of 16 bytes.
PYTURBO_INLINE U8 lookup(const uint8_t* table, U8 index) {
  const __m256i repeated = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
  return (U8)_mm256_shuffle_epi8(repeated, (__m256i)index);
}

// acc + the sums of four products, byte by byte: w in 0 .. 2^bits - 1, x in -128 .. 127.
template <uint32_t bits>
PYTURBO_INLINE I32 dot(I32 acc, U8 w, S8 x) {
#if defined(__AVXVNNI__)
  return (I32)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)x);
#else
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (bits < 8) {  // no sum of two products leaves 16 bits
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)w, (__m256i)x);
    return acc + (I32)_mm256_madd_epi16(pairs, ones);
  } else {
    const __m256i low = _mm256_set1_epi16(0x00ff);
    const __m256i even = _mm256_maddubs_epi16(_mm256_and_si256((__m256i)w, low), (__m256i)x);
    const __m256i odd = _mm256_maddubs_epi16(_mm256_andnot_si256(low, (__m256i)w), (__m256i)x);
    return acc + (I32)_mm256_madd_epi16(even, ones) + (I32)_mm256_madd_epi16(odd, ones);
  }
#endif
}

// The same for several vectors, whose sums of two products together stay in 16 bits.
template <uint32_t bits, uint32_t count>
PYTURBO_INLINE I32 dot_all(I32 acc, const U8* w, const S8* x) {
#if !defined(__AVXVNNI__)
  if constexpr (bits < 8) {
    static_assert(count << bits <= 128);
    __m256i pairs = _mm256_maddubs_epi16((__m256i)w[0], (__m256i)x[0]);
#pragma GCC unroll 4
    for (uint32_t i = 1; i < count; ++i)
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16((__m256i)w[i], (__m256i)x[i]));
    return acc + (I32)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
#endif
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; ++i) acc = dot<bits>(acc, w[i], x[i]);
  return acc;
}

// rows[i][j] and rows[j][i] change places, as 32-bit words, in each 16 bytes of four vectors.
PYTURBO_INLINE void transpose_pieces(U8* rows) {
  const __m256i low = _mm256_unpacklo_epi32((__m256i)rows[0], (__m256i)rows[1]);
  const __m256i high = _mm256_unpackhi_epi32((__m256i)rows[0], (__m256i)rows[1]);
  const __m256i low2 = _mm256_unpacklo_epi32((__m256i)rows[2], (__m256i)rows[3]);
  const __m256i high2 = _mm256_unpackhi_epi32((__m256i)rows[2], (__m256i)rows[3]);
  rows[0] = (U8)_mm256_unpacklo_epi64(low, low2);
  rows[1] = (U8)_mm256_unpackhi_epi64(low, low2);
  rows[2] = (U8)_mm256_unpacklo_epi64(high, high2);
  rows[3] = (U8)_mm256_unpackhi_epi64(high, high2);
}

// The same in eight whole vectors.
PYTURBO_INLINE void transpose(U8* rows) {
  transpose_pieces(rows);
  transpose_pieces(rows + 4);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i low = (__m256i)rows[i], high = (__m256i)rows[i + 4];
    rows[i] = (U8)_mm256_permute2x128_si256(low, high, 0x20);
    rows[i + 4] = (U8)_mm256_permute2x128_si256(low, high, 0x31);
  }
}

// Lane i is the sum of the lanes of v[i]: of its halves, then of the halves of that, and so on.
PYTURBO_INLINE F32 sums_of(const F32* v) {
  __m256 halves[4], pairs[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256 a = (__m256)v[i], b = (__m256)v[i + 4];
    halves[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m256d a = _mm256_castps_pd(halves[i * 2]), b = _mm256_castps_pd(halves[i * 2 + 1]);
    pairs[i] =
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  return (F32)_mm256_add_ps(_mm256_shuffle_ps(pairs[0], pairs[1], 0x88),
                            _mm256_shuffle_ps(pairs[0], pairs[1], 0xdd));
}

// 32 values of 3, 5 or 6 bits, one after another from bit 0 of `from`, which has 4 * bits bytes.
template <uint32_t bits>
PYTURBO_INLINE U8 spread(const uint8_t* from) {
  // Each 128-bit lane makes 16 values of its own 2 * bits bytes. The upper lane starts at byte kStart, so
  // that nothing after the values is read.
  constexpr int kStart = bits < 4 ? 0 : 4 * int(bits) - 16;
  alignas(32) static constexpr struct Tables {
    uint8_t even[32], odd[32];
    uint16_t even_factor[16], odd_factor[16];
    constexpr Tables() : even(), odd(), even_factor(), odd_factor() {
      for (int i = 0; i < 16; ++i) {
        for (int part = 0; part < 2; ++part) {
          const int bit = (i % 8 * 2 + part) * int(bits);
          const int first = bit / 8;
          const int second = first + 1 < 2 * int(bits) ? first + 1 : first;
          const int skip = i < 8 ? 0 : 2 * int(bits) - kStart;
          uint8_t* bytes = part ? odd : even;
          bytes[2 * i] = uint8_t(first + skip);
          bytes[2 * i + 1] = uint8_t(second + skip);
          (part ? odd_factor : even_factor)[i] = uint16_t(1 << (8 - bit % 8));  // the value starts at bit 8
        }
      }
    }
  } tables;
  __m256i stream;
  if constexpr (bits < 4) {
    int32_t rest;
    std::memcpy(&rest, from + 8, sizeof rest);
    stream = _mm256_broadcastsi128_si256(_mm_insert_epi32(_mm_loadl_epi64((const __m128i*)from), rest, 2));
  } else {
    stream = _mm256_loadu2_m128i((const __m128i*)(from + kStart), (const __m128i*)from);
  }
  const __m256i even = _mm256_mullo_epi16(_mm256_shuffle_epi8(stream, *(const __m256i*)tables.even),
                                          *(const __m256i*)tables.even_factor);
  const __m256i odd = _mm256_mullo_epi16(_mm256_shuffle_epi8(stream, *(const __m256i*)tables.odd),
                                         *(const __m256i*)tables.odd_factor);
  const __m256i mask = _mm256_set1_epi16(((1 << bits) - 1) << 8);
  return (U8)_mm256_or_si256(_mm256_srli_epi16(_mm256_and_si256(even, mask), 8), _mm256_and_si256(odd, mask));
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
