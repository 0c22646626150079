// Rows of blocks of 32 values times a few rows of activations, with codes in registers. The arithmetic of one
// result depends neither on the other rows nor on how many tokens there are.
#pragma once

#include "cpu/kernels/gguf_steps.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// As AddGroups says; `at` has the scales of the groups, and w no codes past the last of them.
template <typename T, uint32_t planes, uint32_t tokens>
static void add_blocks(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                       uint32_t /*first*/, uint32_t /*last*/, RowBlock<tokens>& at) {
  using Q = BlockCodes<T>;
  constexpr uint32_t kRows = kRowsAtOnce<tokens>;
  constexpr uint32_t kShift = 5;
  static_assert(T::kGroup == 1 << kShift);
  const I32 groups = lane_groups<Q>(kShift);
  F32 acc[tokens][kRows];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) acc[t][i] = at.sums[t][r + i * step];
  const uint8_t* rows = w.row(row + r);
  const uint64_t row_step = step * w.row_bytes, scale_step = step * at.stride;
  const uint64_t ahead = at.ahead;

  const auto add = [&](uint32_t column, auto codes_of, I32 index) __attribute__((always_inline)) {
    U8 codes[kRows];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) {
      codes[i] = codes_of(i * row_step);
      if constexpr (Q::kSigned) codes[i] ^= 0x80;
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const int8_t* from = x.planes + t * x.row_bytes + uint64_t(column) * planes;
      S8 bytes[planes];
#pragma GCC unroll 3
      for (uint32_t p = 0; p < planes; ++p) bytes[p] = load_vector<S8>(from + p * kBytes);
      const float* scales = at.scales_of(t, r) + (column >> kShift);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kRows; ++i)
        acc[t][i] =
            fused(dot_block<Q, planes>(&codes[i], bytes), pick(scales + i * scale_step, index), acc[t][i]);
    }
  };
  const uint32_t steps = w.in / kStep<T>;
  for (uint32_t s = 0; s < steps; ++s) {
    const uint8_t* from = rows + uint64_t(s) * kStepBlocks<T> * T::kBlockBytes;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kStepVectors<T>; ++i)
      add(
          s * kStep<T> + i * kBytes,
          [=](uint64_t offset) __attribute__((always_inline)) {
            if (i * kLine < kStepBlocks<T> * T::kBlockBytes)
              __builtin_prefetch(from + offset + ahead + i * kLine);
            return step_codes<T>(from + offset, i);
          },
          groups);
  }
  if constexpr (kStepBlocks<T> > 1)
    if (w.in % kStep<T> != 0)  // the lanes past the row are zeros, with the scale of its last group
      add(
          steps * kStep<T>,
          [=](uint64_t offset) {
            return last_codes<T>(rows + offset + uint64_t(steps) * kStepBlocks<T> * T::kBlockBytes);
          },
          I32{});
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) at.sums[t][r + i * step] = acc[t][i];
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
