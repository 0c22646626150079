// Units of GGUF blocks where vectors have 16 bytes: four groups, whose scales are the lanes of a vector.
#pragma once

#include "cpu/kernels/gguf_steps.h"
#include "cpu/kernels/quantized_matrix.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The groups of a row of small blocks that do not fill a span. The last span of the row has them in its last
// lanes, after some that were in the span before; a row that is shorter than a span has them in its first.
struct LastSpan {
  uint32_t groups;   // none: all spans are whole
  uint32_t first;    // group of the span
  uint32_t skipped;  // lanes
  bool is_row;       // the span is longer than the row

  explicit LastSpan(const Matrix& w)
      : groups(w.groups % kLanes),
        first(w.groups < kLanes ? 0 : w.groups - kLanes),
        skipped(w.groups < kLanes ? 0 : kLanes - groups),
        is_row(w.groups < kLanes) {}

  // All ones in the lanes that have the groups.
  I32 lanes() const { return first_lanes(skipped + groups) & ~first_lanes(skipped); }
};

// Whether a type has signed codes of its own, kTimes as large.
template <typename T>
constexpr bool kHasSigned = requires { T::kTimes; };

// What a byte of signed_codes() has to be lowered by, and how large it is at most.
template <typename T>
constexpr int32_t kCenter = 0;
template <typename T>
  requires(
              requires { T::kZero; } && !requires { T::kTable; } && T::kBits < 8 && !kHasSigned<T>)
constexpr int32_t kCenter<T> = int32_t(T::kZero);
template <typename T>
constexpr uint32_t kLargest = T::kBits == 8 || kHasSigned<T> ? 128 : 64;

// The numbers of a table of codes, as signed bytes.
template <typename T>
struct SignedTable {
  uint8_t bytes[16];
  constexpr SignedTable() : bytes() {
    for (uint32_t i = 0; i < 16; ++i) bytes[i] = uint8_t(T::kTable[i] - T::kZero);
  }
};
template <typename T>
constexpr SignedTable<T> kSignedTable;

// Vector v of a span, as signed bytes.
template <typename T>
PYTURBO_INLINE U8 signed_codes(const uint8_t* span, uint32_t v) {
  constexpr uint32_t kVectors = T::kBlock / kBytes;
  if constexpr (kHasSigned<T>) return T::signed_codes(span, v * kBytes);
  const U8 codes = packed_codes<T>(span + v / kVectors * T::kBlockBytes, v % kVectors);
  if constexpr (requires { T::kTable; })
    return lookup(kSignedTable<T>.bytes, codes);
  else if constexpr (T::kBits == 8)
    return codes ^ 0x80;
  else
    return codes;
}

// What a row's span holds beside its codes: a value is code * scale + minimum. Where codes have a center, it
// makes the minima.
template <typename T>
struct SpanScales {
  static constexpr bool kHasMinima = requires { T::kLeast; } || kCenter<T> > 0;
  static constexpr uint32_t kUnits = T::kBlock / (kLanes * T::kGroup);
  F32 scales[kUnits], minima[kUnits];

  PYTURBO_INLINE SpanScales read(const uint8_t* span) {
    F32 numbers[4], others[4];
    small_to_floats(T::scale_codes(span), T::kScaleZero, numbers);
    if constexpr (requires { T::minimum_codes(span); }) small_to_floats(T::minimum_codes(span), 0, others);
    SpanScales own;
    if constexpr (requires { T::kLeast; }) {
      static_assert(T::kLeast == T::kFactor + 2);
      const F32 factors = two_halves(span + T::kFactor), negative = -factors;
#pragma GCC unroll 4
      for (uint32_t u = 0; u < kUnits; ++u) {
        constexpr bool kApart = requires { T::minimum_codes(span); };  // else they follow their four scales
        own.scales[u] = times_lane<0>(kApart ? numbers[u] : numbers[2 * u], factors);
        own.minima[u] = times_lane<1>(kApart ? others[u] : numbers[2 * u + 1], negative);
      }
    } else {
      float factor = half(span + T::kFactor);
      if constexpr (kHasSigned<T>) factor /= T::kTimes;
#pragma GCC unroll 4
      for (uint32_t u = 0; u < kUnits; ++u) {
        own.scales[u] = numbers[u] * factor;
        if constexpr (kCenter<T> > 0) own.minima[u] = own.scales[u] * float(-kCenter<T>);
      }
    }
    return own;
  }
};

// Four small blocks have a scale each, and maybe a bias, which is added.
template <typename T>
  requires(!kLarge<T>)
struct SpanScales<T> {
  static constexpr bool kHasMinima = requires { T::kBiased; } || kCenter<T> > 0;
  F32 scales[1], minima[1];

  PYTURBO_INLINE SpanScales read(const uint8_t* span) {
    const U32 words = gather_words<T::kBlockBytes>(span, kLanes);
    SpanScales own;
    own.scales[0] = scales_of_words<T>(words);
    if constexpr (kCenter<T> > 0)
      own.minima[0] = own.scales[0] * float(-kCenter<T>);
    else if constexpr (kHasMinima)
      own.minima[0] = from_half(upper_halves(words));
    return own;
  }
};

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
