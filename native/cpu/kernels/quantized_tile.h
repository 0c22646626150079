// Tiles of a quantised matrix times many rows of f32 activations. A tile is kTileRows rows of the matrix, one
// in each lane; a chunk of its columns is converted to floats once, then multiplied with every token. Each
// result is one chain of fused multiply-adds from the first column to the last, so it does not depend on the
// other rows and tokens.
#pragma once

#include "cpu/kernels/gguf_panel.h"
#if defined(__ARM_NEON)
#include "cpu/kernels/packed_tokens.h"
#endif
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Scales and biases of `groups` groups from `group` on, of kLanes rows that lie in the lanes; targets have
// room for a multiple of kLanes groups. For codes that stand for code + offset.
static void load_lane_groups(const Matrix& w, const uint32_t* rows, uint32_t group, uint32_t groups,
                             float offset, F32* scales, F32* biases) {
  by_scale_type(w, [&](auto type) {
    for (uint32_t g = 0; g < groups; g += kLanes) {
      U8 own_scales[kLanes], own_biases[kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        const GroupVector v =
            load_groups_as<decltype(type)>(w, rows[l], group + g, w.groups - group - g, offset);
        own_scales[l] = (U8)v.scales;
        own_biases[l] = (U8)v.biases;
      }
      transpose(own_scales);
      transpose(own_biases);
      for (uint32_t i = 0; i < kLanes; ++i) {
        scales[g + i] = (F32)own_scales[i];
        biases[g + i] = (F32)own_biases[i];
      }
    }
  });
}

// codes[c][l] = word l of class c of the blocks that start `offset` bytes into kLanes rows, one in each lane.
template <typename Q>
PYTURBO_INLINE void load_lane_codes(const Matrix& w, const uint32_t* rows, uint64_t offset,
                                    U8 (*codes)[kLanes]) {
  constexpr uint32_t kClasses = Order<Q::kBits>::kClasses;
  if constexpr (kWithinBytes<Q>) {
    U8 words[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) words[l] = packed_block(w, rows[l], offset);
    transpose(words);
#pragma GCC unroll 16
    for (uint32_t l = 0; l < kLanes; ++l) {
      U8 own[kClasses];
      split<Q>(words[l], own);
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kClasses; ++c) codes[c][l] = own[c];
    }
  } else {
    static_assert(kClasses == 1);
    for (uint32_t l = 0; l < kLanes; ++l) unpack_block<Q>(w, rows[l], offset, &codes[0][l]);
    transpose(codes[0]);
  }
}

// Loads columns [begin, begin + kChunk) of the tile from row `first`; rows past the matrix repeat the last
// one.
using LoadFloats = void (*)(const Matrix& w, uint32_t first, uint32_t begin, TileChunk& chunk);

// As LoadFloats says, of arrays.
template <typename Q>
static void load_chunk(const Matrix& w, uint32_t first, uint32_t begin, TileChunk& chunk) {
  using O = Order<Q::kBits>;
  const uint32_t values = least(kChunk, w.in - begin);
  constexpr uint32_t kGroups = kChunk / 16;  // at most
  static_assert(kGroups % kLanes == 0);
  F32 scales[kGroups], biases[kGroups];
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    uint32_t rows[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) rows[l] = least(first + v * kLanes + l, w.out - 1);
    load_lane_groups(w, rows, begin >> w.group_shift, values >> w.group_shift, 0, scales, biases);
    for (uint32_t at = 0; at < values; at += O::kBlock) {
      U8 codes[O::kClasses][kLanes];
      load_lane_codes<Q>(w, rows, uint64_t(begin + at) / 8 * Q::kBits, codes);
      for (uint32_t c = 0; c < O::kClasses; ++c) {
        for (uint32_t l = 0; l < kLanes; ++l) {
          const uint32_t column = at + l * O::kLaneValues + c;
          if (column >= values) break;
          const uint32_t g = column >> w.group_shift;
          const F32 scale = scales[g], bias = biases[g];
#pragma GCC unroll 4
          for (uint32_t j = 0; j < 4; ++j) {
            const I32 bytes = (I32)((U32)codes[c][l] >> (8 * j)) & 0xff;
            chunk.values[column + j * O::kClasses][v] = fused(numbers<Q>(bytes), scale, bias);
          }
        }
      }
    }
  }
}

// sums[t, r] = row first + r of w times row row + t of x, for the kTileRows rows of a tile and all tokens.
// Where x is packed, sums has room for whole vectors of tokens.
using MultiplyTile = void (*)(const Matrix& w, uint32_t first, const Activations& x, uint64_t row,
                              uint32_t tokens, float* sums);

// As LoadFloats says, of blocks.
template <typename Q>
static void load_panel(const Matrix& w, uint32_t first, uint32_t begin, TileChunk& chunk) {
  Panel<kTileRows, kChunk> panel;
  load_chunk<Q>(panel.load(w, first, least(kTileRows, w.out - first), begin), 0, 0, chunk);
}

// As MultiplyTile says.
template <LoadFloats load>
static void multiply_tile(const Matrix& w, uint32_t first, const Activations& x, uint64_t row,
                          uint32_t tokens, float* sums) {
  const float* values = x.values + row * w.in;
  TileChunk chunk;
  std::memset(sums, 0, sizeof(float) * (x.packed ? in_lanes(tokens) : tokens) * kTileRows);
  for (uint32_t begin = 0; begin < w.in; begin += kChunk) {
    load(w, first, begin, chunk);
    const uint32_t columns = least(kChunk, w.in - begin);
#if defined(__ARM_NEON)
    if (x.packed) {
      multiply_packed(chunk, columns, x.packed, w.in, begin, tokens, sums);
      continue;
    }
#endif
    multiply_rows_of(chunk, columns, values + begin, w.in, tokens, sums);
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
