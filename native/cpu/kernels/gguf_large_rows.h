// Rows of blocks of 256 values times a few rows of activations, with codes and scales in registers. The
// arithmetic of one result depends neither on the other rows nor on how many tokens there are.
#pragma once

#include "cpu/kernels/gguf_scales.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// As AddGroups says, for whole rows.
template <typename T, uint32_t planes, uint32_t tokens>
static void add_large_blocks(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                             uint32_t /*first*/, uint32_t /*last*/, RowBlock<tokens>& at) {
  using Q = BlockCodes<T>;
  using Scales = BlockScales<T>;
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  F32 acc[tokens][kRows];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = at.sums[t][r + i * step];
  const uint8_t* from = w.row(row + r);
  const uint8_t* next = from + prefetch_distance(w, kRows);  // the rows to prefetch, which follow one another
  const uint64_t row_step = step * w.row_bytes;
  const int8_t* bytes = x.planes;
  for (uint32_t block = 0; block < w.in / T::kBlock; ++block) {
    Scales scales[tokens][kRows];
    typename Scales::Entries entries[kRows];
    Scales::template read<kRows>(from, row_step, entries);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const uint64_t place = t * x.stride + block * T::kScales;
      const auto by = Scales::factors(x.scales + place, x.sums + place);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = scales[t][i].start(acc[t][i], entries[i], by);
    }
#pragma GCC unroll 16
    for (uint32_t v = 0; v < kStepVectors<T>; ++v) {
      constexpr uint32_t kLines = (kRows * T::kBlockBytes + kLine - 1) / kLine;
#pragma GCC unroll 16
      for (uint32_t l = v * kLines / kStepVectors<T>; l < (v + 1) * kLines / kStepVectors<T>; ++l)
        __builtin_prefetch(next + l * kLine);
      U8 codes[kRows];
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i) {
        codes[i] = step_codes<T>(from + i * row_step, v);
        if constexpr (Q::kSigned) codes[i] ^= 0x80;
      }
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        S8 own[planes];
#pragma GCC unroll 3
        for (uint32_t p = 0; p < planes; ++p)
          own[p] = load_vector<S8>(bytes + t * x.row_bytes + (v * planes + p) * kBytes);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < kRows; ++i)
          acc[t][i] = fused(dot_block<Q, planes>(&codes[i], own), scales[t][i].of_lanes(v), acc[t][i]);
      }
    }
    from += T::kBlockBytes;
    next += kRows * T::kBlockBytes;
    bytes += T::kBlock * planes;
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) at.sums[t][r + i * step] = acc[t][i];
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
