// Rows of activations in blocks of kPackedTokens, [column, token], for products in f32 with NEON: a lane of a
// vector is a factor, so that one read serves four tokens, and the reads of a block follow one another.
#pragma once

#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kPackedVectors = 3;
constexpr uint32_t kPackedTokens = kPackedVectors * kLanes;  // whose sums stay in registers

// The vectors of a block that has the first of `tokens` tokens.
PYTURBO_INLINE uint32_t packed_vectors(uint64_t tokens) {
  return uint32_t(in_lanes(least(tokens, uint64_t(kPackedTokens))) / kLanes);
}

// Packs the first block of x [tokens, in]. Where tokens do not fill its last vector, the last one is
// repeated.
static inline void pack_tokens(const float* x, uint32_t in, uint64_t tokens, float* to) {
  const uint32_t vectors = packed_vectors(tokens);
  for (uint32_t v = 0; v < vectors; ++v) {
    const float* from[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) from[l] = x + least(uint64_t(v * kLanes + l), tokens - 1) * in;
    for (uint32_t column = 0; column < in; column += kLanes) {
      U8 rows[kLanes];
#pragma GCC unroll 4
      for (uint32_t l = 0; l < kLanes; ++l) rows[l] = (U8)load_floats(from[l] + column);
      transpose(rows);
#pragma GCC unroll 4
      for (uint32_t l = 0; l < kLanes; ++l)
        store_floats(to + ((column + l) * vectors + v) * kLanes, (F32)rows[l]);
    }
  }
}

// sums[t, lane] += sum over i < columns of chunk[i, lane] * x[i, t], one after another.
template <uint32_t vectors>
static void multiply_packed_block(const TileChunk& chunk, uint32_t columns, const float* x, float* sums) {
  F32 acc[vectors][kLanes][kTileVectors];
#pragma GCC unroll 3
  for (uint32_t b = 0; b < vectors; ++b)
#pragma GCC unroll 4
    for (uint32_t l = 0; l < kLanes; ++l)
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v)
        acc[b][l][v] = load_floats(sums + (b * kLanes + l) * kTileRows + v * kLanes);
  for (uint32_t i = 0; i < columns; ++i) {
#pragma GCC unroll 3
    for (uint32_t b = 0; b < vectors; ++b) {
      const F32 factors = load_floats(x + (i * vectors + b) * kLanes);
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) {
        acc[b][0][v] = fused_lane<0>(chunk.values[i][v], factors, acc[b][0][v]);
        acc[b][1][v] = fused_lane<1>(chunk.values[i][v], factors, acc[b][1][v]);
        acc[b][2][v] = fused_lane<2>(chunk.values[i][v], factors, acc[b][2][v]);
        acc[b][3][v] = fused_lane<3>(chunk.values[i][v], factors, acc[b][3][v]);
      }
    }
  }
#pragma GCC unroll 3
  for (uint32_t b = 0; b < vectors; ++b)
#pragma GCC unroll 4
    for (uint32_t l = 0; l < kLanes; ++l)
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v)
        store_floats(sums + (b * kLanes + l) * kTileRows + v * kLanes, acc[b][l][v]);
}

// The same for all tokens of packed rows of `in` columns, from column `begin` on. `sums` has room for
// whole vectors of tokens.
static void multiply_packed(const TileChunk& chunk, uint32_t columns, const float* packed, uint32_t in,
                            uint32_t begin, uint32_t tokens, float* sums) {
  for (uint32_t t = 0; t < tokens; t += kPackedTokens) {
    const uint32_t vectors = packed_vectors(tokens - t);
    const float* x = packed + uint64_t(t) * in + begin * vectors * kLanes;
    const auto multiply = vectors == 3   ? multiply_packed_block<3>
                          : vectors == 2 ? multiply_packed_block<2>
                                         : multiply_packed_block<1>;
    multiply(chunk, columns, x, sums + uint64_t(t) * kTileRows);
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
