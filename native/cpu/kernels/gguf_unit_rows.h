// Rows of GGUF blocks times one row of activations, where vectors have 16 bytes: the exact dot products of
// four groups become the lanes of one vector and are scaled together. The arithmetic of one result does not
// depend on the other rows.
#pragma once

#include "cpu/kernels/gguf_units.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The dot products of the four groups of a unit, one in each lane, for units that follow one another. The
// sums of bytes go on from unit to unit as the bits of a float, and what a unit has added to them is the
// difference of two floats, which is exact.
template <typename T, uint32_t planes>
class UnitDots {
 public:
  // Units after which sums are at most 2^22, as kFloatBits needs it: bytes of activations are at most 128.
  static constexpr uint32_t kMost = (1u << 22) / (T::kGroup * 128 * kLargest<T>);

  PYTURBO_INLINE UnitDots start() {
    UnitDots dots;
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; ++p) {
#pragma GCC unroll 4
      for (uint32_t g = 0; g < kLanes; ++g) dots.sums_[g][p] = I32{kFloatBits};
      dots.before_[p] = splat(kFloatOfBits);
    }
    return dots;
  }

  [[gnu::always_inline]] F32 next(const U8* codes, const int8_t* x) {
    constexpr uint32_t kVectors = T::kGroup / kBytes;
#pragma GCC unroll 4
    for (uint32_t g = 0; g < kLanes; ++g) {
      S8 bytes[kVectors * planes];
#pragma GCC unroll 6
      for (uint32_t i = 0; i < kVectors * planes; ++i)
        bytes[i] = load_vector<S8>(x + (g * kVectors * planes + i) * kBytes);
#pragma GCC unroll 2
      for (uint32_t k = 0; k < kVectors; ++k)
#pragma GCC unroll 3
        for (uint32_t p = 0; p < planes; ++p)
          sums_[g][p] = dot<T::kBits>(sums_[g][p], codes[g * kVectors + k], bytes[k * planes + p]);
    }
    F32 total;
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; ++p) {
      const F32 sum =
          (F32)add_pairs(add_pairs(sums_[0][p], sums_[1][p]), add_pairs(sums_[2][p], sums_[3][p]));
      const F32 own = sum - before_[p];
      before_[p] = sum;
      total = p == 0 ? own : fused(total, splat(256), own);
    }
    return total;
  }

 private:
  I32 sums_[kLanes][planes];  // of a group's bytes in the four lanes, and kFloatBits in one of them
  F32 before_[planes];
};

// Integers of a row of activations, from a span's first column on.
struct SpanActivations {
  const int8_t* bytes;
  const float* scales;
  const float* sums;
};

// acc + a span of a row times its activations.
template <typename T, uint32_t planes>
PYTURBO_INLINE F32 add_span(const uint8_t* span, const SpanActivations& x, UnitDots<T, planes>& dots,
                            F32 acc) {
  constexpr uint32_t kUnitVectors = kLanes * T::kGroup / kBytes;
  constexpr uint32_t kKept = 128 / kBytes;  // vectors of codes that are made together: they share bytes
  const SpanScales<T> scales = SpanScales<T>::read(span);
#pragma GCC unroll 2
  for (uint32_t first = 0; first < kSpan<T> / kBytes; first += kKept) {
    if constexpr (planes > 1 && T::kGroup < 32) load_again();
    U8 codes[kKept];
#pragma GCC unroll 8
    for (uint32_t v = 0; v < kKept; ++v) codes[v] = signed_codes<T>(span, first + v);
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kKept; v += kUnitVectors) {
      const uint32_t u = (first + v) / kUnitVectors;
      const F32 own = dots.next(codes + v, x.bytes + (first + v) * planes * kBytes);
      acc = fused(own, scales.scales[u] * load_floats(x.scales + u * kLanes), acc);
      if constexpr (scales.kHasMinima) acc = fused(scales.minima[u], load_floats(x.sums + u * kLanes), acc);
    }
  }
  return acc;
}

// The activations of a row's last groups, where these do not fill a span.
template <typename T, uint32_t planes>
struct LastActivations {
  alignas(16) float scales[kLanes], sums[kLanes];  // zeros for groups of the span before
  alignas(16) int8_t copy[kSpan<T> * planes];      // of activations that are shorter than a span
  SpanActivations span;

  LastActivations(const Matrix& w, const LastSpan& last, const Activations& x)
      : span{x.planes + uint64_t(last.first) * T::kBlock * planes, scales, sums} {
    store_floats(scales, (F32)((I32)load_floats(x.scales + last.first) & last.lanes()));
    store_floats(sums, (F32)((I32)load_floats(x.sums + last.first) & last.lanes()));
    if (!last.is_row) return;
    std::memset(copy, 0, sizeof copy);
    std::memcpy(copy, x.planes, w.in * planes);
    span.bytes = copy;
  }
};

// As AddGroups says, for whole rows.
template <typename T, uint32_t planes>
static void add_units(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                      uint32_t /*first*/, uint32_t /*last*/, RowBlock<1>& at) {
  using Dots = UnitDots<T, planes>;
  constexpr uint32_t kGroups = kSpan<T> / T::kGroup;
  constexpr uint32_t kSpans = Dots::kMost * kLanes / kGroups - !kLarge<T>;  // and the last one
  const uint32_t spans = w.in / kSpan<T>, rows = step == 0 ? 1 : kRowsAtOnce<1>;
  const auto add_rows = [&](const auto& add_last) __attribute__((always_inline)) {
    for (uint32_t i = 0; i < rows; ++i) {
      const uint8_t* from = w.row(row + r + i);
      F32 acc = at.sums[0][r + i];
      Dots dots;
      uint32_t begin = 0;
      do {
        dots = Dots::start();
        for (uint32_t s = begin; s < least(begin + kSpans, spans); ++s)
          acc = add_span<T, planes>(
              from + s * kSpanBytes<T>,
              {x.planes + s * kSpan<T> * planes, x.scales + s * kGroups, x.sums + s * kGroups}, dots, acc);
        begin += kSpans;
      } while (begin < spans);
      at.sums[0][r + i] = add_last(from, dots, acc);
    }
  };
  if constexpr (!kLarge<T>)
    if (const LastSpan last(w); last.groups > 0) {
      const LastActivations<T, planes> own(w, last, x);
      add_rows([&](const uint8_t* from, Dots& dots, F32 acc) {
        const uint8_t* span = from + last.first * T::kBlockBytes;
        uint8_t copy[kSpanBytes<T>];  // of a row that is shorter than a span
        if (last.is_row) {
          std::memset(copy, 0, sizeof copy);
          std::memcpy(copy, span, w.row_bytes);
          span = copy;
        }
        return add_span<T, planes>(span, own.span, dots, acc);
      });
      return;
    }
  add_rows([](const uint8_t*, Dots&, F32 acc) { return acc; });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
