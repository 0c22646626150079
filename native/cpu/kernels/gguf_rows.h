// Rows of GGUF blocks times a few rows of activations, with codes and scales in registers. The arithmetic of
// one result depends neither on the other rows nor on how many tokens there are.
#pragma once

#include "cpu/kernels/gguf_scales.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kLine = 64;  // bytes of a cache line

// As AddGroups says, for whole rows.
template <typename T, uint32_t planes, uint32_t tokens>
static void add_blocks(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                       uint32_t /*first*/, uint32_t /*last*/, RowBlock<tokens>& at) {
  using Q = BlockCodes<T>;
  using Scales = BlockScales<T>;
  static_assert(!Q::kSigned);
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  constexpr uint32_t kVectors = kSpan<T> / kBytes;
  F32 acc[tokens][kRows];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = at.sums[t][r + i * step];
  const uint8_t* from = w.row(row + r);
  const uint8_t* next = from + prefetch_distance(w, kRows);  // the rows to prefetch, which follow one another
  const uint64_t row_step = step * w.row_bytes;
  const int8_t* bytes = x.planes;
  uint32_t group = 0;
  Scales scales[tokens][kRows];
  // Begins a span, whose first groups may be those of the span before.
  const auto start = [&](const auto* entries, uint32_t skipped) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const uint64_t place = t * x.stride + group - skipped;
      const auto by = Scales::factors(x.scales + place, x.sums + place, skipped);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = scales[t][i].start(acc[t][i], entries[i], by);
    }
  };
  // Adds vector v of a row's next values, whose first group is number `first` of the span.
  const auto add = [&](uint32_t v, uint32_t first, auto codes_of) __attribute__((always_inline)) {
    U8 codes[kRows];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) codes[i] = codes_of(from + i * row_step);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      S8 own[planes];
#pragma GCC unroll 3
      for (uint32_t p = 0; p < planes; ++p)
        own[p] = load_vector<S8>(bytes + t * x.row_bytes + (v * planes + p) * kBytes);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i)
        acc[t][i] = fused(dot_block<Q, planes>(&codes[i], own), scales[t][i].of_lanes(first), acc[t][i]);
    }
  };
  // Asks for the lines from number `begin` to `end` of those to prefetch next.
  const auto prefetch = [&](uint32_t begin, uint32_t end) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (uint32_t line = begin; line < end; ++line) __builtin_prefetch(next + line * kLine);
  };
  typename Scales::Entries entries[kRows];
  const uint32_t blocks = w.in / T::kBlock;
  for (uint32_t span = 0; span < blocks / kSpanBlocks<T>; ++span) {
    constexpr uint32_t kLines = (kRows * kSpanBytes<T> + kLine - 1) / kLine;
    Scales::template read<kRows>(from, row_step, entries);
    start(entries, 0);
#pragma GCC unroll 16
    for (uint32_t v = 0; v < kVectors; ++v) {
      prefetch(v * kLines / kVectors, (v + 1) * kLines / kVectors);
      add(v, v * kBytes / T::kGroup,
          [=](const uint8_t* own) __attribute__((always_inline)) { return span_codes<T>(own, v); });
    }
    from += kSpanBytes<T>;
    next += kRows * kSpanBytes<T>;
    bytes += kSpan<T> * planes;
    group += kSpan<T> / T::kGroup;
  }
  if constexpr (!kLarge<T>)
    if (const uint32_t count = blocks % kLanes; count > 0) {
      const uint32_t skipped = blocks < kLanes ? 0 : kLanes - count;
      prefetch(0, (kRows * count * T::kBlockBytes + kLine - 1) / kLine);
      if (skipped > 0)
        Scales::template read<kRows>(from - skipped * T::kBlockBytes, row_step, entries);
      else
        for (uint32_t i = 0; i < kRows; ++i) entries[i] = Scales::Entries::read(from + i * row_step, count);
      start(entries, skipped);
      for (uint32_t v = 0; v < count / kStepBlocks<T>; ++v)
        add(v, skipped + v * kStepBlocks<T>, [=](const uint8_t* own) { return span_codes<T>(own, v); });
      if (count % kStepBlocks<T> != 0)  // activations past the row are zeros, whatever scale they have
        add(count / kStepBlocks<T>, skipped + count - 1,
            [=](const uint8_t* own) { return last_codes<T>(own + (count - 1) * T::kBlockBytes); });
    }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) at.sums[t][r + i * step] = acc[t][i];
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
