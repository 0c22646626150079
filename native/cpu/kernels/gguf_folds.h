// The codes of GGUF blocks as rows of them are multiplied: in folds, whose vectors have one group in each
// piece, so that the sums of all of them are scaled at once. A group of 32 values has a piece in each of two.
#pragma once

#include "cpu/kernels/gguf_steps.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kPieces = kBytes / 16;  // of a vector

template <typename T>
constexpr uint32_t kFoldVectors = T::kGroup / 16;

// Whether two groups share their bytes: they are two folds of one block of activations.
template <typename T>
constexpr bool kShared = requires { T::kRuns; };
template <typename T>
constexpr ByteOrder kFoldOrder = kFoldVectors<T> == 1 ? kNatural : ByteOrder{16, kShared<T> ? 4u : 2u};

// The group of the first piece of fold `f` of a span, and the distance to those of the others.
template <typename T>
constexpr uint32_t fold_group(uint32_t f) {
  return kShared<T> ? f / 2 * 2 * kPieces + f % 2 : f * kPieces;
}
template <typename T>
constexpr uint32_t kGroupStep = kShared<T> ? 2 : 1;

// The fifth bits of values [16 * k, 16 * k + 16) of `count` small blocks.
template <typename T>
PYTURBO_INLINE uint64_t fifth_bits_of_pieces(const uint8_t* from, uint32_t count, uint32_t k) {
  uint64_t bits = 0;
#pragma GCC unroll 4
  for (uint32_t q = 0; q < count; ++q)
    bits |= uint64_t(load_vector<uint16_t>(from + q * T::kBlockBytes + T::kFifth + 2 * k)) << (16 * q);
  return bits;
}

// Fold `f` of a span. Where it has `count` small blocks instead of kPieces, the codes of the others are any.
template <typename T>
PYTURBO_INLINE void fold_codes(const uint8_t* span, uint32_t f, uint32_t count, U8* codes) {
  if constexpr (kFoldVectors<T> == 1) {
    codes[0] = step_codes<T>(span, f);
  } else if constexpr (kShared<T>) {
    U8 runs[2];
    load_runs(span + T::kRuns + f / 2 * kPieces * 32, 32, kPieces, runs);
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; ++k) {
      codes[k] = (f % 2 == 0 ? runs[k] : (U8)((U16)runs[k] >> 4)) & 15;
      if constexpr (requires { T::kFifths; }) {
        U8 bit;
        for (uint32_t i = 0; i < kBytes; ++i)
          bit[i] = uint8_t(1 << (fold_group<T>(f) + i / 16 * kGroupStep<T>));
        codes[k] |= where_bit(repeat_piece(span + T::kFifths + 16 * k), bit, 16);
      }
    }
  } else if constexpr (requires { T::kNibbles; }) {
    constexpr uint32_t kStride = kLarge<T> ? 16 : T::kBlockBytes;
    const uint8_t* from = span + f * kPieces * kStride;
    const U8 pieces = held(load_pieces(from + T::kNibbles, kStride, count));
    codes[0] = pieces & 15;
    codes[1] = (U8)((U16)pieces >> 4) & 15;
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; ++k) {
      if constexpr (requires { T::kFifth; })
        codes[k] |= where_set(fifth_bits_of_pieces<T>(from, count, k), 16);
      if constexpr (requires { T::kTable; }) codes[k] = lookup(T::kTable, codes[k]);
    }
  } else {
    load_runs(span + f * kPieces * T::kBlockBytes + T::kCodes, T::kBlockBytes, count, codes);
    codes[0] ^= 128;
    codes[1] ^= 128;
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
