// Tiles of a quantised matrix times many rows of 8-bit activations. A tile is kTileRows rows of the matrix,
// one in each lane; it is unpacked and transposed once per chunk of columns, then multiplied with every
// token. The arithmetic of one result does not depend on the other rows and tokens: per group an exact
// integer dot product, scaled and added.
#pragma once

#include "cpu/kernels/quantized_matrix.h"
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kIntegerChunk =
    512;  // columns at a time: the unpacked weights stay in the first-level cache
constexpr uint32_t kChunkGroups = kIntegerChunk / 16;  // at most

// A chunk of a tile, row per lane.
struct IntegerChunk {
  U8 codes[kTileVectors][kIntegerChunk / 4];  // [vector, block, class, 32-bit word of the block's vector]
  F32 scales[kTileVectors][kChunkGroups];
  F32 biases[kTileVectors][kChunkGroups];
};

// Columns [begin, begin + kIntegerChunk) of the tile from row `first`; rows past the matrix repeat the last
// one.
template <typename Q>
static void load_integer_chunk(const Matrix& w, uint32_t first, uint32_t begin, IntegerChunk& chunk) {
  using O = Order<Q::kBits>;
  const uint32_t values = least(kIntegerChunk, w.in - begin);
  const uint32_t group = begin >> w.group_shift;
  const uint32_t groups = values >> w.group_shift;
  alignas(64) float scales[kLanes][kChunkGroups + kLanes], biases[kLanes][kChunkGroups + kLanes];
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    uint32_t rows[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) rows[l] = least(first + v * kLanes + l, w.out - 1);
    for (uint32_t at = 0; at < values; at += O::kBlock) {
      const uint64_t offset = uint64_t(begin + at) / 8 * Q::kBits;
      U8 codes[O::kClasses][kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        U8 row[O::kClasses];
        unpack_block<Q>(w, rows[l], offset, row);
        for (uint32_t c = 0; c < O::kClasses; ++c) codes[c][l] = row[c];
      }
      U8* target = chunk.codes[v] + at / 4;
      for (uint32_t c = 0; c < O::kClasses; ++c) {
        transpose(codes[c]);
        for (uint32_t l = 0; l < kLanes; ++l) target[c * kLanes + l] = codes[c][l];
      }
    }
    for (uint32_t l = 0; l < kLanes; ++l) {
      for (uint32_t g = 0; g < groups; g += kLanes) {
        const GroupVector vector = load_groups<Q>(w, rows[l], group + g, float(Q::kOffset));
        store_floats(scales[l] + g, vector.scales);
        store_floats(biases[l] + g, vector.biases);
      }
    }
    for (uint32_t g = 0; g < groups; ++g) {
      alignas(64) float column[2][kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        column[0][l] = scales[l][g];
        column[1][l] = biases[l][g];
      }
      chunk.scales[v][g] = load_floats(column[0]);
      chunk.biases[v][g] = load_floats(column[1]);
    }
  }
}

// sums[t, row of the tile] += chunk . x[t] for a few tokens; x starts at column `begin`'s row.
template <typename Q, uint32_t tokens>
static void multiply_integer_chunk(const IntegerChunk& chunk, const Matrix& w, uint32_t begin,
                                   const Activations& x, float* sums) {
  using O = Order<Q::kBits>;
  const uint32_t values = least(kIntegerChunk, w.in - begin);
  const uint32_t group_size = 1u << w.group_shift;
  const uint32_t blocks = group_size > O::kBlock ? group_size / O::kBlock : 1;
  const uint32_t lanes = least(kLanes, group_size / O::kLaneValues);
  const uint64_t first_group = begin >> w.group_shift;
  for (uint32_t g = 0; g < values >> w.group_shift; ++g) {
    const uint32_t value = g << w.group_shift;
    const uint32_t lane = value % O::kBlock / O::kLaneValues;
    I32 total[kTileVectors][tokens] = {};
    for (uint32_t b = 0; b < blocks; ++b) {
      const uint32_t block = value / O::kBlock + b;
      for (uint32_t c = 0; c < O::kClasses; ++c) {
        const U8* words = &chunk.codes[0][(block * O::kClasses + c) * kLanes + lane];
        const int8_t* source =
            x.planes + uint64_t(begin / O::kBlock + block) * O::kBlock + c * kBytes + lane * 4;
        for (uint32_t l = 0; l < lanes; ++l) {
          U8 word[kTileVectors];
#pragma GCC unroll 2
          for (uint32_t v = 0; v < kTileVectors; ++v) word[v] = words[v * (kIntegerChunk / 4) + l];
#pragma GCC unroll 8
          for (uint32_t t = 0; t < tokens; ++t) {
            const S8 four = splat_word(source + t * x.row_bytes + l * 4);
#pragma GCC unroll 2
            for (uint32_t v = 0; v < kTileVectors; ++v)
              total[v][t] = dot<Q::kBits>(total[v][t], word[v], four);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t) {
      const F32 scale = splat(x.scales[t * x.stride + first_group + g]);
      const F32 sum_of_x = splat(x.sums[t * x.stride + first_group + g]);
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) {
        float* place = sums + t * kTileRows + v * kLanes;
        F32 acc = fused(chunk.biases[v][g], sum_of_x, load_floats(place));
        store_floats(place, fused(to_float(total[v][t]), chunk.scales[v][g] * scale, acc));
      }
    }
  }
}

// sums[t, r] = row first + r of w times x[t] for the kTileRows rows of a tile and all tokens.
template <typename Q>
static void multiply_integer_tile(const Matrix& w, uint32_t first, const Activations& x, uint32_t tokens,
                                  float* sums) {
  IntegerChunk chunk;
  std::memset(sums, 0, sizeof(float) * tokens * kTileRows);
  for (uint32_t begin = 0; begin < w.in; begin += kIntegerChunk) {
    load_integer_chunk<Q>(w, first, begin, chunk);
    uint32_t t = 0;
    for (; t + kIntegerTokens <= tokens; t += kIntegerTokens)
      multiply_integer_chunk<Q, kIntegerTokens>(chunk, w, begin, x.from(t), sums + uint64_t(t) * kTileRows);
    for (; t + 2 <= tokens; t += 2)
      multiply_integer_chunk<Q, 2>(chunk, w, begin, x.from(t), sums + uint64_t(t) * kTileRows);
    for (; t < tokens; ++t)
      multiply_integer_chunk<Q, 1>(chunk, w, begin, x.from(t), sums + uint64_t(t) * kTileRows);
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
