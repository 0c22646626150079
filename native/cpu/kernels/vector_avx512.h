// AVX-512: vectors of 64 bytes. With VNNI where the level has it, else without.
#pragma once

#include <immintrin.h>

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kBytes = 64;
constexpr uint32_t kLanes = 16;         // 32-bit values of a vector
constexpr uint32_t kTileTokens = 12;    // tokens whose sums in f32 stay in registers
constexpr uint32_t kIntegerTokens = 8;  // tokens whose integer sums do
constexpr uint32_t kPlanesAtOnce = 3;   // planes of bytes whose sums do, with those of four tokens
constexpr bool kSignedWeights = false;
#if defined(__AVX512VNNI__)
constexpr bool kDotsInPairs = false;  // whether `dot` adds products of codes below 64 in pairs
#else
constexpr bool kDotsInPairs = true;
#endif

typedef float F32 __attribute__((vector_size(64)));
typedef int32_t I32 __attribute__((vector_size(64)));
typedef uint32_t U32 __attribute__((vector_size(64)));
typedef uint16_t U16 __attribute__((vector_size(64)));
typedef uint8_t U8 __attribute__((vector_size(64)));
typedef int8_t S8 __attribute__((vector_size(64)));
typedef uint16_t U16Half __attribute__((vector_size(32)));  // kLanes 16-bit values
typedef int8_t S8Quarter __attribute__((vector_size(16)));  // kLanes 8-bit values

// Keeps v in a register, so that a value that is used twice is read once.
PYTURBO_INLINE U8 held(U8 v) {
  asm("" : "+v"(v));
  return v;
}

// Sums that go through this are added to in turns, so that none waits for itself.
PYTURBO_INLINE I32 in_turn(I32 v) {
  asm volatile("" : "+v"(v));
  return v;
}

PYTURBO_INLINE F32 splat(float value) { return (F32)_mm512_set1_ps(value); }
PYTURBO_INLINE F32 fused(F32 a, F32 b, F32 c) {
  return (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
PYTURBO_INLINE F32 larger(F32 a, F32 b) { return (F32)_mm512_max_ps((__m512)a, (__m512)b); }
PYTURBO_INLINE F32 from_half(U16Half v) { return (F32)_mm512_cvtph_ps((__m256i)v); }
PYTURBO_INLINE F32 from_bfloat(U16Half v) {
  return (F32)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)v), 16);
}
PYTURBO_INLINE U16Half to_half(F32 v) {
  return (U16Half)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
PYTURBO_INLINE I32 to_nearest(F32 v) { return (I32)_mm512_cvtps_epi32((__m512)v); }  // ties to even

PYTURBO_INLINE float sum(F32 v) { return _mm512_reduce_add_ps((__m512)v); }
// Wraps around, which the compiler's own reduction leaves undefined.
PYTURBO_INLINE int32_t sum(I32 v) {
  const __m256i eight =
      _mm256_add_epi32(_mm512_castsi512_si256((__m512i)v), _mm512_extracti64x4_epi64((__m512i)v, 1));
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
PYTURBO_INLINE int32_t largest(I32 v) { return _mm512_reduce_max_epi32((__m512i)v); }

// table[index] of up to kLanes floats.
PYTURBO_INLINE F32 pick(const float* table, I32 index) {
  return (F32)_mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(table));
}

// The lanes of v that `index` names.
PYTURBO_INLINE F32 pick(F32 v, I32 index) { return (F32)_mm512_permutexvar_ps((__m512i)index, (__m512)v); }

// The same in the lanes of `where`, and those of `others` in the others.
PYTURBO_INLINE U32 pick_where(I32 where, U32 v, I32 index, U32 others) {
  return (U32)_mm512_mask_permutexvar_epi32((__m512i)others, _mm512_movepi32_mask((__m512i)where),
                                            (__m512i)index, (__m512i)v);
}

// The low 16 bits of each word.
PYTURBO_INLINE U16Half lower_halves(U32 words) { return (U16Half)_mm512_cvtepi32_epi16((__m512i)words); }

// Four times 16 bytes, at distances of `step` bytes; where there are `count`, the others are the last one.
PYTURBO_INLINE U8 load_pieces(const uint8_t* from, uint64_t step, uint32_t count) {
  const auto quarter = [=](uint32_t i) {
    return _mm_loadu_si128((const __m128i*)(from + (i < count ? i : count - 1) * step));
  };
  const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(quarter(0)), quarter(1), 1);
  return (U8)_mm512_inserti32x4(_mm512_inserti32x4(two, quarter(2), 2), quarter(3), 3);
}

// The same with 32 bytes each: all first halves, then all second halves.
PYTURBO_INLINE void load_runs(const uint8_t* from, uint64_t step, uint32_t count, U8* halves) {
  const auto run = [=](uint32_t i) {
    return _mm256_loadu_si256((const __m256i*)(from + (i < count ? i : count - 1) * step));
  };
  const auto two = [=](uint32_t i) {
    if (step == 32 && count == 4) return _mm512_loadu_si512(from + i * step);
    return _mm512_inserti64x4(_mm512_castsi256_si512(run(i)), run(i + 1), 1);
  };
  const __m512i first = two(0), second = two(2);
  halves[0] = (U8)_mm512_shuffle_i32x4(first, second, 0x88);
  halves[1] = (U8)_mm512_shuffle_i32x4(first, second, 0xdd);
}

// The same 16 bytes everywhere.
PYTURBO_INLINE U8 repeat_piece(const uint8_t* from) {
  return (U8)_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)from));
}

// In each of the quarters: the words that are named, from the first on; four words; and of all quarters the
// first words, twice.
template <int a, int b, int c, int d>
PYTURBO_INLINE U32 shuffle_words(U32 v) {
  return (U32)_mm512_shuffle_epi32((__m512i)v, (_MM_PERM_ENUM)(a | b << 2 | c << 4 | d << 6));
}
PYTURBO_INLINE U32 repeat_words(int a, int b, int c, int d) { return (U32)_mm512_setr4_epi32(a, b, c, d); }
PYTURBO_INLINE __m256i first_words(U32 v) {
  return _mm512_castsi512_si256(_mm512_permutexvar_epi32(_mm512_setr4_epi32(0, 4, 8, 12), (__m512i)v));
}

// Four floats, four times.
PYTURBO_INLINE F32 repeat_floats(const float* from) {
  return (F32)_mm512_broadcast_f32x4(_mm_loadu_ps(from));
}

// Eight floats, then eight others.
PYTURBO_INLINE F32 join(const float* first, const float* second) {
  return (F32)_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(first)), _mm256_loadu_ps(second), 1);
}

// The first eight lanes of a, and those of a - b after them.
PYTURBO_INLINE F32 subtract_upper(F32 a, F32 b) {
  return (F32)_mm512_mask_sub_ps((__m512)a, 0xff00, (__m512)a, (__m512)b);
}

// kLanes signed bytes, each as 16 bits.
PYTURBO_INLINE U16Half widen(const void* from) {
  return (U16Half)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
}

// The same as 32 bits.
PYTURBO_INLINE I32 widen_twice(const void* from) {
  return (I32)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from));
}

// Twice as many signed bytes as 16 bits, and the halves of such a vector.
PYTURBO_INLINE U16 widen_two(const void* from) {
  return (U16)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
}
PYTURBO_INLINE U16Half low_half(U16 v) { return (U16Half)_mm512_castsi512_si256((__m512i)v); }
PYTURBO_INLINE U16Half high_half(U16 v) { return (U16Half)_mm512_extracti64x4_epi64((__m512i)v, 1); }

// Two vectors, one after the other.
PYTURBO_INLINE U8 join(U8x32 a, U8x32 b) {
  return (U8)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)a), (__m256i)b, 1);
}

// The low nibbles of 16 bytes, then their high nibbles, then those of 16 others.
PYTURBO_INLINE U8 split_nibbles(const uint8_t* first, const uint8_t* second) {
  const __m512i both =
      _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)first)), 0xff00,
                                  _mm_loadu_si128((const __m128i*)second));
  const __m512i counts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
  return (U8)_mm512_and_si512(_mm512_srlv_epi64(both, counts), _mm512_set1_epi8(15));
}

// kLanes words at distances of `stride` bytes, or the `count` there are and zeros.
template <int stride>
PYTURBO_INLINE U32 gather_words(const uint8_t* from, uint32_t count) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 some =
      _mm512_cmplt_epi32_mask(lanes, _mm512_set1_epi32(int(count < kLanes ? count : kLanes)));
  return (U32)_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), some,
                                          _mm512_mullo_epi32(lanes, _mm512_set1_epi32(stride)), from, 1);
}

// The same 32 bytes in both halves.
template <typename V>
PYTURBO_INLINE V load_twice(const uint8_t* from) {
  return (V)_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)from));
}

// The halves, in pairs of bytes, moved to the right or, both of them, to the left.
PYTURBO_INLINE U8 move_halves(U8 v, int32_t first, int32_t second) {
  const auto counts = [](int32_t a, int32_t b) {
    return _mm512_inserti64x4(_mm512_set1_epi16(int16_t(a)), _mm256_set1_epi16(int16_t(b)), 1);
  };
  return first < 0 ? (U8)_mm512_sllv_epi16((__m512i)v, counts(-first, -second))
                   : (U8)_mm512_srlv_epi16((__m512i)v, counts(first, second));
}

// `value` where a bit is set, else 0: bit i for byte i.
PYTURBO_INLINE U8 where_set(uint64_t bits, uint8_t value) {
  return (U8)_mm512_maskz_set1_epi8(bits, char(value));
}

// `value` where a byte has the bit of another, else 0.
PYTURBO_INLINE U8 where_bit(U8 bytes, U8 bit, uint8_t value) {
  return where_set(_mm512_test_epi8_mask((__m512i)bytes, (__m512i)bit), value);
}

// 16 bytes, each as 32 bits, in 16 / kLanes vectors.
PYTURBO_INLINE void widen_all(U8x16 v, I32* words) { words[0] = (I32)_mm512_cvtepu8_epi32((__m128i)v); }

// table[index] of 16 bytes.
PYTURBO_INLINE U8 lookup(const uint8_t* table, U8 index) {
  const __m512i repeated = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table));
  return (U8)_mm512_shuffle_epi8(repeated, (__m512i)index);
}

// acc + the sums of four products, byte by byte: w in 0 .. 2^bits - 1, x in -128 .. 127.
template <uint32_t bits>
PYTURBO_INLINE I32 dot(I32 acc, U8 w, S8 x) {
#if defined(__AVX512VNNI__)
  return (I32)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
#else
  const __m512i ones = _mm512_set1_epi16(1);
  if constexpr (bits < 8) {  // no sum of two products leaves 16 bits
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)w, (__m512i)x);
    return acc + (I32)_mm512_madd_epi16(pairs, ones);
  } else {
    const __m512i low = _mm512_set1_epi16(0x00ff);
    const __m512i even = _mm512_maddubs_epi16(_mm512_and_si512((__m512i)w, low), (__m512i)x);
    const __m512i odd = _mm512_maddubs_epi16(_mm512_andnot_si512(low, (__m512i)w), (__m512i)x);
    return acc + (I32)_mm512_madd_epi16(even, ones) + (I32)_mm512_madd_epi16(odd, ones);
  }
#endif
}

// The same for several vectors, whose sums of two products together stay in 16 bits.
template <uint32_t bits, uint32_t count>
PYTURBO_INLINE I32 dot_all(I32 acc, const U8* w, const S8* x) {
#if !defined(__AVX512VNNI__)
  if constexpr (bits < 8) {
    static_assert(count << bits <= 128);
    __m512i pairs = _mm512_maddubs_epi16((__m512i)w[0], (__m512i)x[0]);
#pragma GCC unroll 4
    for (uint32_t i = 1; i < count; ++i)
      pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16((__m512i)w[i], (__m512i)x[i]));
    return acc + (I32)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  }
#endif
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; ++i) acc = dot<bits>(acc, w[i], x[i]);
  return acc;
}

// rows[i][j] and rows[j][i] change places, as 32-bit words, in each 16 bytes of four vectors.
PYTURBO_INLINE void transpose_pieces(U8* rows) {
  const __m512i low = _mm512_unpacklo_epi32((__m512i)rows[0], (__m512i)rows[1]);
  const __m512i high = _mm512_unpackhi_epi32((__m512i)rows[0], (__m512i)rows[1]);
  const __m512i low2 = _mm512_unpacklo_epi32((__m512i)rows[2], (__m512i)rows[3]);
  const __m512i high2 = _mm512_unpackhi_epi32((__m512i)rows[2], (__m512i)rows[3]);
  rows[0] = (U8)_mm512_unpacklo_epi64(low, low2);
  rows[1] = (U8)_mm512_unpackhi_epi64(low, low2);
  rows[2] = (U8)_mm512_unpacklo_epi64(high, high2);
  rows[3] = (U8)_mm512_unpackhi_epi64(high, high2);
}

// The same in 16 whole vectors.
PYTURBO_INLINE void transpose(U8* rows) {
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) transpose_pieces(rows + i);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int r) { return (__m512i)rows[i + r]; };
    const __m512i low = _mm512_shuffle_i32x4(row(0), row(4), 0x88);
    const __m512i high = _mm512_shuffle_i32x4(row(0), row(4), 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(row(8), row(12), 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(row(8), row(12), 0xdd);
    rows[i] = (U8)_mm512_shuffle_i32x4(low, low2, 0x88);
    rows[i + 8] = (U8)_mm512_shuffle_i32x4(low, low2, 0xdd);
    rows[i + 4] = (U8)_mm512_shuffle_i32x4(high, high2, 0x88);
    rows[i + 12] = (U8)_mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}

// Lane i is the sum of the lanes of v[i]: of its halves, then of the halves of that, and so on.
PYTURBO_INLINE F32 sums_of(const F32* v) {
  __m512 halves[8], quarters[4], pairs[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // v[k] and v[k + 4], so that sums end in the order of v
    const __m512 a = (__m512)v[i % 2 * 8 + i / 2], b = (__m512)v[i % 2 * 8 + i / 2 + 4];
    halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = halves[i * 2], b = halves[i * 2 + 1];
    quarters[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(quarters[i * 2]), b = _mm512_castps_pd(quarters[i * 2 + 1]);
    pairs[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  return (F32)_mm512_add_ps(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88),
                            _mm512_shuffle_ps(pairs[0], pairs[1], 0xdd));
}

// The bytes of `count` vectors, those of the first vector at every count-th place.
template <uint32_t count>
PYTURBO_INLINE void interleave(U8* v) {
  static_assert(count == 1 || count == 2 || count == 4);
  const auto two = [](U8& first, U8& second) {
    const __m512i low = _mm512_unpacklo_epi8((__m512i)first, (__m512i)second);
    const __m512i high = _mm512_unpackhi_epi8((__m512i)first, (__m512i)second);
    first = (U8)_mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
    second = (U8)_mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
  };
  if constexpr (count == 2) two(v[0], v[1]);
  if constexpr (count == 4) {
    two(v[0], v[2]);  // every second place, first and second half
    two(v[1], v[3]);
    two(v[0], v[1]);
    two(v[2], v[3]);
  }
}

// 64 values of 3, 5 or 6 bits, one after another from bit 0 of `from`, which has 8 * bits bytes.
template <uint32_t bits>
PYTURBO_INLINE U8 spread(const uint8_t* from) {
  // Each 128-bit lane gets the words with its 16 values; then each 16-bit part the two bytes with its two.
  alignas(64) static constexpr struct Tables {
    uint32_t words[16];
    uint8_t bytes[64];
    uint16_t shifts[32];
    constexpr Tables() : words(), bytes(), shifts() {
      for (uint32_t lane = 0; lane < 4; ++lane) {
        const uint32_t start = lane * 2 * bits;
        for (uint32_t i = 0; i < 4; ++i) words[lane * 4 + i] = start / 4 + i;
        for (uint32_t i = 0; i < 8; ++i) {
          const uint32_t bit = start % 4 * 8 + i * 2 * bits, part = lane * 8 + i;
          bytes[2 * part] = uint8_t(bit / 8);
          bytes[2 * part + 1] = uint8_t(bit / 8 + 1);
          shifts[part] = uint16_t(bit % 8);
        }
      }
    }
  } tables;
  const __m512i stream = _mm512_maskz_loadu_epi32((1 << (2 * bits)) - 1, from);
  const __m512i lanes = _mm512_permutexvar_epi32(_mm512_load_si512(tables.words), stream);
  const __m512i pairs = _mm512_srlv_epi16(_mm512_shuffle_epi8(lanes, _mm512_load_si512(tables.bytes)),
                                          _mm512_load_si512(tables.shifts));
  const U16 low = (U16)pairs, high = low << (8 - bits);
  constexpr uint16_t kFirst = (1 << bits) - 1, kSecond = kFirst << 8;
  return (U8)((low & kFirst) | (high & kSecond));
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
