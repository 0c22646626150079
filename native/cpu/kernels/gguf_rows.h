// Rows of blocks of 32 values times one row of activations, with codes in registers.
#pragma once

#include "cpu/kernels/gguf_steps.h"
#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// As AddGroups says; `at` has the scales of the groups, and w no codes past the last of them.
template <typename T, uint32_t planes>
static void add_blocks(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                       uint32_t /*first*/, uint32_t /*last*/, RowBlock<1>& at) {
  using Q = BlockCodes<T>;
  constexpr uint32_t kRows = kRowsAtOnce<1>;
  constexpr uint32_t kShift = 5;
  static_assert(T::kGroup == 1 << kShift);
  const I32 groups = lane_groups<Q>(kShift);
  F32 acc[kRows];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kRows; ++i) acc[i] = at.sums[0][r + i * step];
  const uint8_t* rows = w.row(row + r);
  const uint64_t row_step = step * w.row_bytes, scale_step = step * at.stride;
  const uint64_t ahead = at.ahead;
  const float* scales = at.scales_of(0, r);

  const auto add = [&](uint32_t column, auto codes_of, I32 index) __attribute__((always_inline)) {
    S8 bytes[planes];
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; ++p)
      bytes[p] = load_vector<S8>(x.planes + uint64_t(column) * planes + p * kBytes);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kRows; ++i) {
      U8 codes = codes_of(i * row_step);
      if constexpr (Q::kSigned) codes ^= 0x80;
      acc[i] = fused(dot_block<Q, planes>(&codes, bytes),
                     pick(scales + i * scale_step + (column >> kShift), index), acc[i]);
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
  for (uint32_t i = 0; i < kRows; ++i) at.sums[0][r + i * step] = acc[i];
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
