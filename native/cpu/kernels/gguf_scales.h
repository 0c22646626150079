// The scales of spans of GGUF blocks times those of activations.
#pragma once

#include <utility>

#include "cpu/kernels/gguf_folds.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The words that kLanes blocks of `stride` bytes begin with; of each, only as many bytes as are in one word
// of the span. Vectors that lie side by side take less time than a gather.
template <uint32_t stride>
PYTURBO_INLINE U32 first_words_of_blocks(const uint8_t* span) {
  constexpr uint32_t kWords = kLanes * stride / 4, kParts = (kLanes - 1) * stride / 4 / kLanes + 1;
  U32 words = {}, shifts;
#pragma GCC unroll 16
  for (uint32_t part = 0; part < kParts; ++part) {
    const uint32_t first = least(part * kLanes, kWords - kLanes);
    I32 index, here;
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t word = l * stride / 4;
      index[l] = int32_t(word - first);
      here[l] = word / kLanes == part ? -1 : 0;
    }
    words = pick_where(here, load_vector<U32>(span + first * 4), index, words);
  }
  for (uint32_t l = 0; l < kLanes; ++l) shifts[l] = l * stride % 4 * 8;
  return stride % 4 == 0 ? words : words >> shifts;
}

// What a span holds: scales, then minima.
template <typename T>
struct SpanEntries {
  static constexpr uint32_t kScales = T::kScales / kLanes, kMinima = T::kMinima / kLanes;  // vectors
  F32 vectors[kScales + kMinima];

  const F32* minima() const { return vectors + (kMinima > 0 ? kScales : 0); }

  PYTURBO_INLINE SpanEntries read(const uint8_t* span) {
    SpanEntries own;
    T::entries(span, own.vectors);
    return own;
  }
};
template <typename T>
  requires(!kLarge<T>)
struct SpanEntries<T> {
  static constexpr uint32_t kScales = 1, kMinima = requires { T::kBiased; };
  F32 vectors[kScales + kMinima];

  const F32* minima() const { return vectors + kMinima; }

  PYTURBO_INLINE SpanEntries read(const uint8_t* span) {
    return of_words(first_words_of_blocks<T::kBlockBytes>(span));
  }

  // What blocks hold that begin with these words.
  PYTURBO_INLINE SpanEntries of_words(U32 words) {
    SpanEntries own;
    own.vectors[0] = scales_of_words<T>(words);
    if constexpr (kMinima > 0) own.vectors[1] = -from_half(upper_halves(words));
    return own;
  }
};

// The lanes of scales that belong to the pieces of a fold, of which the first has group `first`.
template <typename T>
PYTURBO_INLINE I32 lanes_of_fold(uint32_t first) {
  I32 index;
  for (uint32_t l = 0; l < kLanes; ++l) index[l] = int32_t(first % kLanes + l / 4 * kGroupStep<T>);
  return index;
}

template <typename T>
struct BlockScales {
  using Entries = SpanEntries<T>;
  static constexpr uint32_t kVectors = Entries::kScales;
  F32 vectors[kVectors];

  // Scales and sums of the activations of a span.
  struct Factors {
    F32 scales[kVectors], sums[kVectors];
  };
  PYTURBO_INLINE Factors factors(const float* scales, const float* sums) {
    Factors by;
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v) {
      by.scales[v] = load_floats(scales + v * kLanes);
      by.sums[v] = load_floats(sums + v * kLanes) * -kMinimumFactor<T>;
    }
    return by;
  }

  // Reads the entries of `rows` spans at distances of `step` bytes.
  template <uint32_t rows>
  PYTURBO_INLINE void read(const uint8_t* from, uint64_t step, Entries* to) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < rows; ++i) to[i] = Entries::read(from + i * step);
  }

  // Sets the scales, and adds the minima times the sums of activations to a result.
  F32 start(F32 result, const Entries& entries, const Factors& by) {
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v) {
      vectors[v] = entries.vectors[v] * by.scales[v];
      result = fused(entries.minima()[v], by.sums[v], result);
    }
    return result;
  }

  // The scale of each lane of a fold whose first group is number `first` of the span.
  F32 of_lanes(uint32_t first) const { return pick(vectors[first / kLanes], lanes_of_fold<T>(first)); }
};

#if defined(__AVX512BW__)

// Lanes of a vector: one in the first eight, another in the others.
PYTURBO_INLINE F32 pick_two(F32 v, int32_t first, int32_t second) {
  return pick(v, first_lanes(8) ? I32{} + first : I32{} + second);
}

// Eight scales and eight minima fill one vector.
template <typename T>
  requires(kLarge<T> && T::kScales == 8)
struct BlockScales<T> {
  F32 both;

  struct Factors {
    F32 both;
  };
  PYTURBO_INLINE Factors factors(const float* scales, const float* sums) {
    const F32 both = join(scales, sums);
    if constexpr (kMinimumFactor<T> == 1) return {both};
    return {first_lanes(8) ? both : both * kMinimumFactor<T>};
  }

  struct Entries {
    F32 both;
  };
  template <uint32_t rows>
  PYTURBO_INLINE void read(const uint8_t* from, uint64_t step, Entries* to) {
    if constexpr (rows == 4 && requires { T::kSixBits; }) {
      read_four(from, step, to);
    } else {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < rows; ++i) T::entries(from + i * step, &to[i].both);
    }
  }

  // As scales_and_minima() does, four blocks at a time.
  PYTURBO_INLINE void read_four(const uint8_t* from, uint64_t step, Entries* to) {
    const U32 words = (U32)load_pieces(from, step, 4);
    const U32 low = shuffle_words<1, 3, 2, 3>(words) >> repeat_words(0, 0, 0, 4);
    const U32 high = shuffle_words<0, 1, 0, 2>(words) >> 2;
    const U32 all = (low & repeat_words(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)) |
                    (high & repeat_words(0, 0x30303030, 0, 0x30303030));
    alignas(64) uint8_t bytes[64];
    store_vector(bytes, all);
    const F32 halves = from_half((U16Half)first_words(words));
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; ++i) {
      I32 numbers;
      widen_all(load_vector<U8x16>(bytes + 16 * i), &numbers);
      to[i].both = to_float(numbers) * pick_two(halves, 2 * i, 2 * i + 1);
    }
  }

  F32 start(F32 result, const Entries& entries, const Factors& by) {
    both = entries.both * by.both;
    return subtract_upper(result, both);
  }

  F32 of_lanes(uint32_t first) const { return pick(both, lanes_of_fold<T>(first)); }
};

#endif

// U32{fn(0), fn(1), ...}
template <typename Fn, uint32_t... lanes>
PYTURBO_INLINE U32 words_of(const Fn& fn, std::integer_sequence<uint32_t, lanes...>) {
  return U32{fn(lanes)...};
}

// What folds of small blocks hold that do not belong to a whole span: those of one row after another, kPieces
// lanes each.
template <typename T, uint32_t rows>
struct FoldEntries {
  static_assert(rows * kPieces <= kLanes);
  SpanEntries<T> own;

  // Folds at distances of `step` bytes. Where they have `count` blocks, the others are the last one again.
  FoldEntries(const uint8_t* from, uint64_t step, uint32_t count)
      : own(SpanEntries<T>::of_words(words_of(
            [=](uint32_t l) __attribute__((always_inline)) {
              const uint32_t row = l / kPieces, block = least(l % kPieces, count - 1);
              return row < rows ? load_vector<uint32_t>(from + row * step + block * T::kBlockBytes) : 0;
            },
            std::make_integer_sequence<uint32_t, kLanes>()))) {}

  // Scales of the folds times those of activations, whose scales and sums past the row are zeros.
  struct Scales {
    F32 scales, minima;

    Scales(const SpanEntries<T>& own, const float* by, const float* sums)
        : scales(own.vectors[0] * repeat_floats(by)),
          minima(own.minima()[0] * (repeat_floats(sums) * -kMinimumFactor<T>)) {}

    // Adds the minima of a row to its result, in the same lanes for every row: its place may not change the
    // sum.
    F32 start(F32 result, uint32_t row) const {
      I32 index;
      for (uint32_t l = 0; l < kLanes; ++l) index[l] = int32_t(row * kPieces + l % kPieces);
      return result + (F32)((I32)pick(minima, index) & first_lanes(kPieces));
    }

    F32 of_lanes(uint32_t row) const { return pick(scales, lanes_of_fold<T>(row * kPieces)); }
  };
};

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
