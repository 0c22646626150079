// Rows of GGUF blocks times a few rows of activations, with codes and scales in registers. The arithmetic of
// one result depends neither on the other rows nor on how many tokens there are.
#pragma once

#include "cpu/kernels/gguf_scales.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The activations of fold `f` of those from `bytes` on.
template <typename T, uint32_t planes>
PYTURBO_INLINE TokenBytes fold_bytes(const int8_t* bytes, uint32_t f, uint64_t token_bytes) {
  constexpr ByteOrder order = kFoldOrder<T>;
  const uint32_t vector = f * kFoldVectors<T>, block = vector / order.classes;
  return {bytes + uint64_t(block) * planes * order.block() + vector % order.classes * kBytes, token_bytes,
          order.block()};
}

// As AddGroups says, for whole rows.
template <typename T, uint32_t planes, uint32_t tokens>
static void add_blocks(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                       uint32_t /*first*/, uint32_t /*last*/, RowBlock<tokens>& at) {
  using Q = BlockCodes<T>;
  using Scales = BlockScales<T>;
  static_assert(!Q::kSigned);
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  constexpr uint32_t kVectors = kFoldVectors<T>, kFolds = kSpan<T> / kBytes / kVectors;
  F32 acc[tokens][kRows];
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = at.sums[t][r + i * step];
  const uint8_t* from = w.row(row + r);
  const uint8_t* next = from + at.ahead;  // the rows to prefetch, which follow one another
  const uint64_t row_step = step * w.row_bytes;
  const int8_t* bytes = x.planes;
  const float *x_scales = x.scales, *x_sums = x.sums;
  // Adds fold f of what follows, with `count` groups, whose scales are scale_of(token, row).
  const auto add = [&](uint32_t f, uint32_t count, const auto& scale_of) __attribute__((always_inline)) {
    constexpr uint32_t kTogether = least(kRows, kRowsInTurn);
#pragma GCC unroll 4
    for (uint32_t begin = 0; begin < kRows; begin += kTogether) {
      U8 codes[kTogether][kVectors];
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTogether; ++i)
        fold_codes<T>(from + (begin + i) * row_step, f, count, codes[i]);
      F32 dots[tokens][kTogether];
      dot_rows<Q, planes, kVectors, tokens>(codes, fold_bytes<T, planes>(bytes, f, x.row_bytes), dots);
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
        for (uint32_t i = begin; i < begin + kTogether; ++i)
          acc[t][i] = fused(dots[t][i - begin], scale_of(t, i), acc[t][i]);
    }
  };
  // Asks for the lines from number `begin` to `end` of those to prefetch next.
  const auto prefetch = [&](uint32_t begin, uint32_t end) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (uint32_t line = begin; line < end; ++line) __builtin_prefetch(next + line * kLine);
  };
  const uint32_t blocks = w.in / T::kBlock;
  for (uint32_t span = 0; span < blocks / kSpanBlocks<T>; ++span) {
    constexpr uint32_t kLines = (kRows * kSpanBytes<T> + kLine - 1) / kLine;
    typename Scales::Entries entries[kRows];
    Scales::template read<kRows>(from, row_step, entries);
    Scales scales[tokens][kRows];
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t) {
      const auto by = Scales::factors(x_scales + t * x.stride, x_sums + t * x.stride);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = scales[t][i].start(acc[t][i], entries[i], by);
    }
#pragma GCC unroll 16
    for (uint32_t f = 0; f < kFolds; ++f) {
      prefetch(f * kLines / kFolds, (f + 1) * kLines / kFolds);
      add(f, kPieces, [&](uint32_t t, uint32_t i) __attribute__((always_inline)) {
        return scales[t][i].of_lanes(fold_group<T>(f));
      });
    }
    from += kSpanBytes<T>;
    next += kRows * kSpanBytes<T>;
    bytes += kSpan<T> * planes;
    x_scales += kSpan<T> / T::kGroup;
    x_sums += kSpan<T> / T::kGroup;
  }
  if constexpr (!kLarge<T>) {
    const uint32_t rest = blocks % kSpanBlocks<T>;
    prefetch(0, (kRows * rest * T::kBlockBytes + kLine - 1) / kLine);
    for (uint32_t done = 0; done < rest; done += kPieces) {
      const uint32_t count = least(kPieces, rest - done);
      using Own = FoldEntries<T, kRows>;
      const Own entries(from, row_step, count);
      const auto scales = [&](uint32_t t) __attribute__((always_inline)) {
        return typename Own::Scales(entries.own, x_scales + t * x.stride, x_sums + t * x.stride);
      };
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = scales(t).start(acc[t][i], i);
      // Activations past the row are zeros, whatever codes and scales they have.
      add(0, count,
          [&](uint32_t t, uint32_t i) __attribute__((always_inline)) { return scales(t).of_lanes(i); });
      from += kPieces * T::kBlockBytes;
      bytes += kVectors * kBytes * planes;
      x_scales += kPieces;
      x_sums += kPieces;
    }
  }
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) at.sums[t][r + i * step] = acc[t][i];
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
