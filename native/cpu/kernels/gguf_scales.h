// The scales of spans of GGUF blocks times those of activations.
#pragma once

#include "cpu/kernels/gguf_steps.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// A minimum is an entry of the span times this.
template <typename T>
constexpr int32_t kMinimumFactor = 1;
template <typename T>
  requires requires { T::kZero; }
constexpr int32_t kMinimumFactor<T> = int32_t(T::kZero);

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

  PYTURBO_INLINE SpanEntries read(const uint8_t* span) {
    return of_words(first_words_of_blocks<T::kBlockBytes>(span));
  }

  // The same of a span that has `count` blocks; other lanes are what a word of zero stands for.
  PYTURBO_INLINE SpanEntries read(const uint8_t* span, uint32_t count) {
    return of_words(gather_words<T::kBlockBytes>(span, count));
  }

 private:
  PYTURBO_INLINE SpanEntries of_words(U32 words) {
    SpanEntries own;
    own.vectors[0] = scales_of_words<T>(words);
    if constexpr (kMinima > 0) own.vectors[1] = -from_half(upper_halves(words));
    return own;
  }
};

template <typename T>
struct BlockScales {
  using Entries = SpanEntries<T>;
  static constexpr uint32_t kVectors = Entries::kScales;
  F32 vectors[kVectors];

  // Scales and sums of the activations of a span. The sums of its first `skipped` groups count as zeros.
  struct Factors {
    F32 scales[kVectors], sums[kVectors];
  };
  PYTURBO_INLINE Factors factors(const float* scales, const float* sums, uint32_t skipped) {
    Factors by;
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v) {
      by.scales[v] = load_floats(scales + v * kLanes);
      const F32 own = load_floats(sums + v * kLanes) * -float(kMinimumFactor<T>);
      by.sums[v] = skipped == 0 ? own : (F32)((I32)own & ~first_lanes(skipped));
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
    const F32* minima = Entries::kMinima > 0 ? entries.vectors + kVectors : entries.vectors;
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v) {
      vectors[v] = entries.vectors[v] * by.scales[v];
      result = fused(minima[v], by.sums[v], result);
    }
    return result;
  }

  // The scale of each lane of a vector whose first group is number `first` of the span.
  F32 of_lanes(uint32_t first) const {
    if constexpr (T::kGroup >= kBytes) {
      return splat(reinterpret_cast<const float*>(vectors)[first]);
    } else {
      I32 index;
      for (uint32_t l = 0; l < kLanes; ++l) index[l] = int32_t(first % kLanes + l * 4 / T::kGroup);
      return pick(vectors[first / kLanes], index);
    }
  }
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
  PYTURBO_INLINE Factors factors(const float* scales, const float* sums, uint32_t /*skipped*/) {
    const F32 both = join(scales, sums);
    if constexpr (kMinimumFactor<T> == 1) return {both};
    return {first_lanes(8) ? both : both * float(kMinimumFactor<T>)};
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
    const U32 words = load_quarters(from, step);
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

  F32 of_lanes(uint32_t first) const { return pick_two(both, int32_t(first), int32_t(first + 1)); }
};

#endif

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
