// Sums of products of bytes: the kTileRows rows of a tile, one in each lane, with a few tokens. Exact, so
// every level has the same ones.
#pragma once

#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

#if defined(__ARM_FEATURE_MATMUL_INT8)

// Puts kLanes words of kLanes rows in the order that IntegerSums takes them: eight bytes of two rows.
PYTURBO_INLINE void order_words(U8* words) {
  for (uint32_t l = 0; l < kLanes; l += 2) {
    const uint32x4_t first = (uint32x4_t)words[l], second = (uint32x4_t)words[l + 1];
    words[l] = (U8)vzip1q_u32(first, second);
    words[l + 1] = (U8)vzip2q_u32(first, second);
  }
}

template <uint32_t bits, uint32_t planes, uint32_t tokens>
struct IntegerSums {
  static_assert(planes == 1);
  static constexpr uint32_t kPairs = (tokens + 1) / 2;  // a single token is its own partner
  int32x4_t squares[kTileVectors][kPairs][2] = {};      // of two rows: [token of the pair, row]

  // Adds `count` words, an even number, of each vector of rows, which are `distance` words apart; the bytes
  // of tokens are `stride` apart, and those of planes `plane`.
  template <uint32_t count>
  void add(const U8* words, uint32_t distance, const int8_t* x, uint64_t stride, uint32_t /*plane*/) {
#pragma GCC unroll 4
    for (uint32_t l = 0; l < count; l += 2) {
      int8x16_t rows[kTileVectors][2];
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v)
#pragma GCC unroll 2
        for (uint32_t i = 0; i < 2; ++i) rows[v][i] = (int8x16_t)words[v * distance + l + i];
#pragma GCC unroll 4
      for (uint32_t p = 0; p < kPairs; ++p) {
        const int8_t* first = x + 2 * p * stride + l * 4;
        const int8_t* second = tokens == 1 ? first : first + stride;
        const int8x16_t both = vcombine_s8(vld1_s8(first), vld1_s8(second));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < kTileVectors; ++v)
#pragma GCC unroll 2
          for (uint32_t i = 0; i < 2; ++i) squares[v][p][i] = vmmlaq_s32(squares[v][p][i], both, rows[v][i]);
      }
    }
  }

  // The sums of token t with the rows of vector v, in plane p.
  F32 of(uint32_t /*p*/, uint32_t v, uint32_t t) const {
    const int64x2_t low = (int64x2_t)squares[v][t / 2][0], high = (int64x2_t)squares[v][t / 2][1];
    return small_to_float((I32)(t % 2 == 0 ? vtrn1q_s64(low, high) : vtrn2q_s64(low, high)));
  }
};

#elif defined(__ARM_NEON)

PYTURBO_INLINE void order_words(U8*) {}

template <uint32_t bits, uint32_t planes, uint32_t tokens>
struct IntegerSums {
  static_assert(planes == 1);
  I32 total[kTileVectors][tokens];  // and kFloatBits

  IntegerSums() {
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) total[v][t] = read_float_bits();
  }

  // Adds `count` words, two or four.
  template <uint32_t count>
  void add(const U8* words, uint32_t distance, const int8_t* x, uint64_t stride, uint32_t /*plane*/) {
    S8 four[tokens];  // words of a token
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t) four[t] = load_vector<S8>(x + t * stride);
    add_word<0>(words, distance, four);
    add_word<1>(words, distance, four);
    if constexpr (count == 4) {
      add_word<2>(words, distance, four);
      add_word<3>(words, distance, four);
    }
  }

  template <int l>
  [[gnu::always_inline]] void add_word(const U8* words, uint32_t distance, const S8* four) {
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v)
        total[v][t] = dot_word<bits, l>(total[v][t], words[v * distance + l], four[t]);
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) total[v][t] = in_turn(total[v][t]);
  }

  F32 of(uint32_t /*p*/, uint32_t v, uint32_t t) const { return less_float_bits(total[v][t]); }
};

#else

PYTURBO_INLINE void order_words(U8*) {}

template <uint32_t bits, uint32_t planes, uint32_t tokens>
struct IntegerSums {
  I32 total[planes][kTileVectors][tokens] = {};

  // Without a loop: from one turn to the next the compiler would move all sums to other registers.
  template <uint32_t count>
  [[gnu::always_inline]] void add(const U8* words, uint32_t distance, const int8_t* x, uint64_t stride,
                                  uint32_t plane) {
    const int8_t* rows[tokens];  // held, or the compiler would keep a pointer for each plane and word
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t) {
      rows[t] = x + t * stride;
      asm("" : "+r"(rows[t]));
    }
#pragma GCC unroll 8
    for (uint32_t l = 0; l < count; ++l) {
      U8 word[kTileVectors];
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) word[v] = words[v * distance + l];
#pragma GCC unroll 3
      for (uint32_t p = 0; p < planes; ++p)
#pragma GCC unroll 8
        for (uint32_t t = 0; t < tokens; ++t) {
          const S8 four = splat_word(rows[t] + p * plane + l * 4);
#pragma GCC unroll 2
          for (uint32_t v = 0; v < kTileVectors; ++v)
            total[p][v][t] = dot<bits>(total[p][v][t], word[v], four);
        }
    }
  }

  F32 of(uint32_t p, uint32_t v, uint32_t t) const { return to_float(total[p][v][t]); }
};

#endif

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
