// Rows of a matrix of E4M3 codes times few rows of f32 activations. The arithmetic of one result does not
// depend on the other rows and tokens: per group fused additions in each lane, scaled and added.
#pragma once

#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// y[t * y_stride + r] = row first + r of w times x[t], for a few rows and tokens.
template <uint32_t rows, uint32_t tokens>
static void multiply_e4m3_few(const Matrix& w, uint32_t first, const float* x, float* y, uint64_t y_stride) {
  constexpr uint32_t kGroup = 32;
  const uint64_t ahead = prefetch_distance(w, rows);
  F32 sums[rows][tokens] = {};
  float factors[rows][kLanes];  // of kLanes groups
  for (uint32_t g = 0; g < w.groups; ++g) {
    if (g % kLanes == 0)
      for (uint32_t r = 0; r < rows; ++r)
        store_floats(factors[r], load_groups_as<E8M0>(w, first + r, g, w.groups - g, 0).scales);
    F32 dots[rows][tokens] = {};
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kGroup; i += 2 * kLanes)
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r) {
        const uint32_t column = g * kGroup + i;
        const uint8_t* from = w.row(first + r) + column;
        if (column % 64 == 0) __builtin_prefetch(from + ahead);
        const U16 halves = e4m3_halves(widen_two(from));
        const F32 low = from_half(low_half(halves)), high = from_half(high_half(halves));
#pragma GCC unroll 4
        for (uint32_t t = 0; t < tokens; ++t) {
          const float* values = x + uint64_t(t) * w.in + column;
          dots[r][t] = fused(low, load_floats(values), dots[r][t]);
          dots[r][t] = fused(high, load_floats(values + kLanes), dots[r][t]);
        }
      }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t)
        sums[r][t] = fused(dots[r][t], splat(factors[r][g % kLanes]), sums[r][t]);
  }
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t t = 0; t < tokens; ++t) y[t * y_stride + r] = sum(sums[r][t]) * kE4m3Unit;
}

// The same for any number of rows.
template <uint32_t tokens>
static void multiply_e4m3_tokens(const Matrix& w, uint32_t first, uint32_t rows, const float* x, float* y,
                                 uint64_t y_stride) {
  constexpr uint32_t kRows = tokens == 1 ? 4 : tokens == 2 ? 2 : 1;
  uint32_t r = 0;
  for (; r + kRows <= rows; r += kRows) multiply_e4m3_few<kRows, tokens>(w, first + r, x, y + r, y_stride);
  for (; r < rows; ++r) multiply_e4m3_few<1, tokens>(w, first + r, x, y + r, y_stride);
}

// The same for any number of rows and tokens.
static void multiply_e4m3_rows(const Matrix& w, uint32_t first, uint32_t rows, const float* x,
                               uint32_t tokens, float* y, uint64_t y_stride) {
  uint32_t t = 0;
  for (; t + 4 <= tokens; t += 4)
    multiply_e4m3_tokens<4>(w, first, rows, x + uint64_t(t) * w.in, y + t * y_stride, y_stride);
  for (; t + 2 <= tokens; t += 2)
    multiply_e4m3_tokens<2>(w, first, rows, x + uint64_t(t) * w.in, y + t * y_stride, y_stride);
  for (; t < tokens; ++t)
    multiply_e4m3_tokens<1>(w, first, rows, x + uint64_t(t) * w.in, y + t * y_stride, y_stride);
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
