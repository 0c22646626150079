// Tiles of a quantised matrix times many rows of integer activations. A tile is kTileRows rows of the matrix,
// one in each lane; it is unpacked and transposed once per chunk of columns, then multiplied with every
// token. The arithmetic of one result does not depend on the other rows and tokens: per group an exact
// integer dot product with each plane, which are joined, scaled and added.
#pragma once

#include "cpu/kernels/integer_sums.h"
#include "cpu/kernels/quantized_again.h"
#include "cpu/kernels/quantized_tile.h"

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
PYTURBO_INLINE void load_integer_chunk(const Matrix& w, uint32_t first, uint32_t begin, IntegerChunk& chunk) {
  using O = Order<Q::kBits>;
  const uint32_t values = least(kIntegerChunk, w.in - begin);
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
        order_words(codes[c]);
        for (uint32_t l = 0; l < kLanes; ++l) target[c * kLanes + l] = codes[c][l];
      }
    }
    load_lane_groups(w, rows, begin >> w.group_shift, values >> w.group_shift, float(Q::kOffset),
                     chunk.scales[v], chunk.biases[v]);
  }
}

// Codes of 3, 5 and 6 bits are bytes alike once they are unpacked.
constexpr uint32_t like_bits(uint32_t bits) { return bits == 3 || bits == 5 ? 6 : bits; }

// sums[t, row of the tile] += chunk . x[t] for a few tokens; x starts at column `begin`'s row.
template <uint32_t bits, uint32_t planes, uint32_t tokens>
[[gnu::noinline]] static void multiply_integer_chunk(const IntegerChunk& chunk, const Matrix& w,
                                                     uint32_t begin, const Activations& x, float* sums) {
  using O = Order<bits>;
  const uint32_t values = least(kIntegerChunk, w.in - begin);
  const uint32_t group_size = 1u << w.group_shift;
  const uint32_t blocks = group_size > O::kBlock ? group_size / O::kBlock : 1;
  const uint32_t lanes = least(kLanes, group_size / O::kLaneValues);
  const uint64_t first_group = begin >> w.group_shift;
  F32 acc[tokens][kTileVectors];
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kTileVectors; ++v) acc[t][v] = load_floats(sums + t * kTileRows + v * kLanes);
  for (uint32_t g = 0; g < values >> w.group_shift; ++g) {
    const uint32_t value = g << w.group_shift;
    const uint32_t lane = value % O::kBlock / O::kLaneValues;
    F32 dots[tokens][kTileVectors];
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; ++p) {
      IntegerSums<bits, tokens> total;
      for (uint32_t b = 0; b < blocks; ++b) {
        const uint32_t block = value / O::kBlock + b;
        const int8_t* from =
            x.planes + (uint64_t(begin / O::kBlock + block) * planes + p) * O::kBlock + lane * 4;
        for (uint32_t c = 0; c < O::kClasses; ++c)
          total.add(&chunk.codes[0][(block * O::kClasses + c) * kLanes + lane], kIntegerChunk / 4, lanes,
                    from + c * kBytes, x.row_bytes);
      }
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < kTileVectors; ++v)
          dots[t][v] = p == 0 ? total.of(v, t) : fused(dots[t][v], splat(256), total.of(v, t));
    }
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t) {
      const F32 scale = splat(x.scales[t * x.stride + first_group + g]);
      const F32 sum_of_x = splat(x.sums[t * x.stride + first_group + g]);
#pragma GCC unroll 2
      for (uint32_t v = 0; v < kTileVectors; ++v) {
        acc[t][v] = fused(chunk.biases[v][g], sum_of_x, acc[t][v]);
        acc[t][v] = fused(dots[t][v], chunk.scales[v][g] * scale, acc[t][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kTileVectors; ++v) store_floats(sums + t * kTileRows + v * kLanes, acc[t][v]);
}

// Tokens at once: sums of three planes need more registers.
template <uint32_t planes>
constexpr uint32_t kTokensAtOnce = planes == 1 ? kIntegerTokens : 4;

// As MultiplyTile says.
template <typename Q, uint32_t planes, bool panels = false>
static void multiply_integer_tile(const Matrix& w, uint32_t first, const Activations& x, uint64_t row,
                                  uint32_t tokens, float* sums) {
  constexpr uint32_t kBits = like_bits(kDotBits<Q>);
  IntegerChunk chunk;
  std::memset(sums, 0, sizeof(float) * tokens * kTileRows);
  for (uint32_t begin = 0; begin < w.in; begin += kIntegerChunk) {
    if constexpr (panels) {
      Panel<kTileRows, kIntegerChunk> panel;
      load_integer_chunk<Q>(panel.load(w, first, least(kTileRows, w.out - first), begin), 0, 0, chunk);
    } else {
      load_integer_chunk<Q>(w, first, begin, chunk);
    }
    const auto multiply = [&](auto multiply_few, uint32_t t) {
      multiply_few(chunk, w, begin, x.from(row + t), sums + uint64_t(t) * kTileRows);
    };
    uint32_t t = 0;
    constexpr uint32_t kMost = kTokensAtOnce<planes>;
    for (; t + kMost <= tokens; t += kMost) multiply(multiply_integer_chunk<kBits, planes, kMost>, t);
    for (; t + 2 <= tokens; t += 2) multiply(multiply_integer_chunk<kBits, planes, 2>, t);
    for (; t < tokens; ++t) multiply(multiply_integer_chunk<kBits, planes, 1>, t);
  }
  const uint32_t rows = least(kTileRows, w.out - first);
  const ReadValues values = panels ? ReadValues{read_block, w.reader->block} : kReadValues<Q>;
  for (uint32_t t = 0; t < tokens; ++t) {
    float* own = sums + uint64_t(t) * kTileRows;
    I32 found = {};
    for (uint32_t i = 0; i < kTileRows; i += kLanes) found |= doubtful(load_floats(own + i));
    if (any(found))
      compute_again(w, first, rows, values, {x.from(row + t), planes, Order<Q::kBits>::kByteOrder}, own);
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
