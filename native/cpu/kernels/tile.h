// The inner loop of products of many rows with many columns: a chunk of one factor, made vectors of floats,
// is multiplied with a few rows of the other at a time.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kTileVectors = 2;
constexpr uint32_t kTileRows = kTileVectors * kLanes;  // results of one row of the other factor
constexpr uint32_t kChunk = 256;  // terms of a chunk: a multiple of every block of weights

// `count` rounded up to whole vectors.
PYTURBO_INLINE constexpr uint64_t in_lanes(uint64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

struct TileChunk {
  F32 values[kChunk][kTileVectors];
};

// sums[t, lane] += sum over i < columns of chunk[i, lane] * x[t, i], one after another, for a few rows of x
// at a distance of `stride` floats.
template <uint32_t tokens>
static void multiply_chunk(const TileChunk& chunk, uint32_t columns, const float* x, uint64_t stride,
                           float* sums) {
  F32 acc[tokens][kTileVectors];
#pragma GCC unroll 16
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kTileVectors; ++v) acc[t][v] = load_floats(sums + t * kTileRows + v * kLanes);
  for (uint32_t i = 0; i < columns; ++i) {
#pragma GCC unroll 16
    for (uint32_t t = 0; t < tokens; ++t) {
      const F32 factor = splat(x[t * stride + i]);
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) acc[t][v] = fused(chunk.values[i][v], factor, acc[t][v]);
    }
  }
#pragma GCC unroll 16
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kTileVectors; ++v) store_floats(sums + t * kTileRows + v * kLanes, acc[t][v]);
}

// How many of `rows` rows to multiply together. Fewer than four leave the multipliers waiting for sums.
PYTURBO_INLINE uint32_t rows_at_once(uint32_t rows) {
  if (rows == 7 || (rows == 8 && kTileTokens < 8)) return 4;
  if (rows >= kTileTokens) return kTileTokens;
  return rows <= 6 || rows == 8 ? rows : (rows + 1) / 2;
}

// The same for any number of rows: the additions of one do not depend on the others.
static void multiply_rows_of(const TileChunk& chunk, uint32_t columns, const float* x, uint64_t stride,
                             uint32_t rows, float* sums) {
  while (rows > 0) {
    const uint32_t count = rows_at_once(rows);
    switch (count) {
      case 1:
        multiply_chunk<1>(chunk, columns, x, stride, sums);
        break;
      case 2:
        multiply_chunk<2>(chunk, columns, x, stride, sums);
        break;
      case 3:
        multiply_chunk<3>(chunk, columns, x, stride, sums);
        break;
      case 4:
        multiply_chunk<4>(chunk, columns, x, stride, sums);
        break;
      case 5:
        multiply_chunk<5>(chunk, columns, x, stride, sums);
        break;
      case 6:
        multiply_chunk<6>(chunk, columns, x, stride, sums);
        break;
      case 8:
        if constexpr (kTileTokens >= 8) multiply_chunk<8>(chunk, columns, x, stride, sums);
        break;
      default:
        multiply_chunk<kTileTokens>(chunk, columns, x, stride, sums);
    }
    x += count * stride;
    sums += count * kTileRows;
    rows -= count;
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
