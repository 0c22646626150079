// A few rows times the rows of a tile of a cache, its keys or its values, which are converted where they are
// used: lanes are columns, and the sums of kLanes keys become scores together. row_of(j) is where row j
// starts.
#pragma once

#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kFewRows = 4;
constexpr uint32_t kAtOnce = kLanes == 8 ? 2 : 4;  // keys, or vectors of columns: sums stay in registers

// scores[r, key] of `count` keys, [rows, kTileRows]. Past the last key they are not valid: those of its
// vector repeat its own, others are not written.
template <uint32_t rows, typename RowOf>
static void score_few(const RowOf& row_of, uint32_t count, uint32_t dim, const float* queries,
                      uint64_t stride, float* scores) {
  for (uint32_t begin = 0; begin < count; begin += kLanes) {
    F32 products[rows][kLanes];
    for (uint32_t l = 0; l < kLanes; l += kAtOnce) {
      decltype(row_of(0)) keys[kAtOnce];
      for (uint32_t j = 0; j < kAtOnce; ++j) keys[j] = row_of(least(begin + l + j, count - 1));
      F32 sums[rows][kAtOnce] = {};
      for (uint32_t i = 0; i < dim; i += kLanes) {
        F32 own[kAtOnce];
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kAtOnce; ++j) own[j] = load_floats(keys[j] + i);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; ++r) {
          const F32 query = load_floats(queries + r * stride + i);
#pragma GCC unroll 4
          for (uint32_t j = 0; j < kAtOnce; ++j) sums[r][j] = fused(own[j], query, sums[r][j]);
        }
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kAtOnce; ++j) products[r][l + j] = sums[r][j];
    }
    for (uint32_t r = 0; r < rows; ++r) store_floats(scores + r * kTileRows + begin, sums_of(products[r]));
  }
}

// Adds `count` values by their weights [rows, kTileRows] to `columns` vectors of the rows' sums, from `begin`
// on. Sums are in tiles [rows, kTileRows] of columns, tile_stride apart.
template <uint32_t rows, uint32_t columns, typename RowOf>
static void add_columns(const RowOf& row_of, uint32_t count, uint32_t begin, const float* weights,
                        float* all_sums, uint64_t tile_stride) {
  const auto place = [&](uint32_t r, uint32_t v) {
    const uint32_t column = begin + v * kLanes;
    return all_sums + column / kTileRows * tile_stride + r * kTileRows + column % kTileRows;
  };
  F32 sums[rows][columns];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (uint32_t v = 0; v < columns; ++v) sums[r][v] = load_floats(place(r, v));
  for (uint32_t j = 0; j < count; ++j) {
    const auto values = row_of(j) + begin;
#pragma GCC unroll 4
    for (uint32_t v = 0; v < columns; ++v) {
      const F32 own = load_floats(values + v * kLanes);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r)
        sums[r][v] = fused(own, splat(weights[r * kTileRows + j]), sums[r][v]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (uint32_t v = 0; v < columns; ++v) store_floats(place(r, v), sums[r][v]);
}

template <uint32_t rows, typename RowOf>
static void add_values_few(const RowOf& row_of, uint32_t count, uint32_t dim, const float* weights,
                           float* sums, uint64_t tile_stride) {
  uint32_t i = 0;
  for (; i + kAtOnce * kLanes <= dim; i += kAtOnce * kLanes)
    add_columns<rows, kAtOnce>(row_of, count, i, weights, sums, tile_stride);
  for (; i < dim; i += kLanes) add_columns<rows, 1>(row_of, count, i, weights, sums, tile_stride);
}

// Calls use<count>(first) for all rows, up to kFewRows at a time.
template <typename Use>
PYTURBO_INLINE void by_few_rows(uint32_t rows, const Use& use) {
  for (uint32_t first = 0; first < rows; first += kFewRows) switch (least(kFewRows, rows - first)) {
      case 1:
        use.template operator()<1>(first);
        break;
      case 2:
        use.template operator()<2>(first);
        break;
      case 3:
        use.template operator()<3>(first);
        break;
      default:
        use.template operator()<kFewRows>(first);
    }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
