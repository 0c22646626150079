// Rows of GGUF blocks times a few rows of activations, where vectors have 16 bytes: the exact dot products of
// four groups become the lanes of one vector and are scaled together. The arithmetic of one result depends
// neither on the other rows nor on how many tokens there are.
#pragma once

#include "cpu/kernels/gguf_units.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The dot products of the four groups of a unit, one in each lane.
template <typename T, uint32_t planes>
PYTURBO_INLINE F32 dot_unit(const U8* codes, const int8_t* x) {
  constexpr uint32_t kVectors = T::kGroup / kBytes;
  I32 last = {};
  I32 sums[kLanes][planes];
#pragma GCC unroll 4
  for (uint32_t g = 0; g < kLanes; ++g) {
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; ++p) sums[g][p] = zeros_after(last);
#pragma GCC unroll 2
    for (uint32_t k = 0; k < kVectors; ++k)
#pragma GCC unroll 3
      for (uint32_t p = 0; p < planes; ++p)
        sums[g][p] = dot<T::kBits>(sums[g][p], codes[g * kVectors + k],
                                   load_vector<S8>(x + ((g * kVectors + k) * planes + p) * kBytes));
    last = sums[g][planes - 1];
    if (g % 2 == 1)
#pragma GCC unroll 3
      for (uint32_t p = 0; p < planes; ++p) sums[g - 1][p] = add_pairs(sums[g - 1][p], sums[g][p]);
  }
  F32 total;
#pragma GCC unroll 3
  for (uint32_t p = 0; p < planes; ++p) {
    const F32 own = small_to_float(add_pairs(sums[0][p], sums[2][p]));
    total = p == 0 ? own : fused(total, splat(256), own);
  }
  return total;
}

// Where the rows of a span lie, and what they hold beside codes.
template <typename T>
struct SpanRows {
  const uint8_t* from;
  uint64_t step;
  SpanScales<T> scales[4];
};

// Integers of a few tokens, from the span's first column on.
struct SpanTokens {
  const int8_t* bytes;
  const float* scales;
  const float* sums;
  uint64_t row_bytes, stride;
};

// acc[t][i] += row i of a span times token t.
template <typename T, uint32_t planes, uint32_t tokens, uint32_t rows>
PYTURBO_INLINE void add_span(const SpanRows<T>& own, const SpanTokens& x, F32 (*acc)[rows]) {
  constexpr uint32_t kUnitVectors = kLanes * T::kGroup / kBytes;
  constexpr uint32_t kKept = 128 / kBytes;  // vectors of codes that are made together: they share bytes
#pragma GCC unroll 2
  for (uint32_t first = 0; first < kSpan<T> / kBytes; first += kKept)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < rows; ++i) {
      load_again();
      U8 codes[kKept];
#pragma GCC unroll 8
      for (uint32_t v = 0; v < kKept; ++v) codes[v] = signed_codes<T>(own.from + i * own.step, first + v);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < kKept; v += kUnitVectors) {
          const uint32_t u = (first + v) / kUnitVectors;
          const F32 x_scales = load_floats(x.scales + t * x.stride + u * kLanes);
          const F32 x_sums = load_floats(x.sums + t * x.stride + u * kLanes);
          const F32 dots =
              dot_unit<T, planes>(codes + v, x.bytes + t * x.row_bytes + (first + v) * planes * kBytes);
          const SpanScales<T>& scales = own.scales[i];
          acc[t][i] = fused(dots, scales.scales[u] * x_scales, acc[t][i]);
          if constexpr (scales.kHasMinima) acc[t][i] = fused(scales.minima[u], x_sums, acc[t][i]);
        }
    }
}

// As AddGroups says, for whole rows.
template <typename T, uint32_t planes, uint32_t tokens>
static void add_units(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                      uint32_t /*first*/, uint32_t /*last*/, RowBlock<tokens>& at) {
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  constexpr uint32_t kGroups = kSpan<T> / T::kGroup;
  constexpr uint32_t kLines = (kRows * kSpanBytes<T> + kLine - 1) / kLine;
  F32 acc[tokens][kRows];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = at.sums[t][r + i * step];
  const uint8_t* from = w.row(row + r);
  const uint8_t* next = from + at.ahead;  // the rows to prefetch, which follow one another
  const uint64_t row_step = step * w.row_bytes;
  const uint32_t spans = w.in / kSpan<T>;
  for (uint32_t s = 0; s < spans; ++s) {
#pragma GCC unroll 16
    for (uint32_t l = 0; l < kLines; ++l) __builtin_prefetch(next + l * kLine);
    SpanRows<T> own = {from, row_step, {}};
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) own.scales[i] = SpanScales<T>::read(from + i * row_step);
    add_span<T, planes, tokens, kRows>(own,
                                       {x.planes + s * kSpan<T> * planes, x.scales + s * kGroups,
                                        x.sums + s * kGroups, x.row_bytes, x.stride},
                                       acc);
    from += kSpanBytes<T>;
    next += kRows * kSpanBytes<T>;
  }
  if constexpr (!kLarge<T>)
    if (const LastSpan last(w); last.groups > 0) {
      SpanRows<T> own = {w.row(row + r) + last.first * T::kBlockBytes, row_step, {}};
      uint8_t copies[kRows][kSpanBytes<T>];  // of rows that are shorter than a span
      if (last.is_row) {
        std::memset(copies, 0, sizeof copies);
        for (uint32_t i = 0; i < kRows; ++i) std::memcpy(copies[i], own.from + i * row_step, w.row_bytes);
        own.from = copies[0];
        own.step = sizeof copies[0];
      }
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i) own.scales[i] = SpanScales<T>::read(own.from + i * own.step);
      alignas(16) int8_t bytes[tokens][kSpan<T> * planes];
      alignas(16) float scales[tokens][kLanes], sums[tokens][kLanes];
      SpanTokens own_x = {x.planes + uint64_t(last.first) * T::kBlock * planes, scales[0], sums[0],
                          x.row_bytes, kLanes};
      if (last.is_row) {
        std::memset(bytes, 0, sizeof bytes);
        for (uint32_t t = 0; t < tokens; ++t)
          std::memcpy(bytes[t], x.planes + t * x.row_bytes, w.in * planes);
        own_x.bytes = bytes[0];
        own_x.row_bytes = sizeof bytes[0];
      }
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        const uint64_t place = t * x.stride + last.first;
        store_floats(scales[t], (F32)((I32)load_floats(x.scales + place) & last.lanes()));
        store_floats(sums[t], (F32)((I32)load_floats(x.sums + place) & last.lanes()));
      }
      add_span<T, planes, tokens, kRows>(own, own_x, acc);
    }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) at.sums[t][r + i * step] = acc[t][i];
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
