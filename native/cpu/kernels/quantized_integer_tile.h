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

// Loads columns [begin, begin + kIntegerChunk) of the tile from row `first`; rows past the matrix repeat the
// last one.
using LoadChunk = void (*)(const Matrix& w, uint32_t first, uint32_t begin, IntegerChunk& chunk);

template <typename Q>
[[gnu::noinline]] static void load_integer_chunk(const Matrix& w, uint32_t first, uint32_t begin,
                                                 IntegerChunk& chunk) {
  using O = Order<Q::kBits>;
  const uint32_t values = least(kIntegerChunk, w.in - begin);
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    uint32_t rows[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) rows[l] = least(first + v * kLanes + l, w.out - 1);
    for (uint32_t at = 0; at < values; at += O::kBlock) {
      U8 codes[O::kClasses][kLanes];
      load_lane_codes<Q>(w, rows, uint64_t(begin + at) / 8 * Q::kBits, codes);
      U8* target = chunk.codes[v] + at / 4;
      for (uint32_t c = 0; c < O::kClasses; ++c) {
        order_words(codes[c]);
        for (uint32_t l = 0; l < kLanes; ++l) target[c * kLanes + l] = codes[c][l];
      }
    }
    load_lane_groups(w, rows, begin >> w.group_shift, values >> w.group_shift, float(Q::kOffset),
                     chunk.scales[v], chunk.biases[v]);
  }
}

// All codes are bytes once they are unpacked. `dot` only asks whether they have less than 8 bits.
constexpr uint32_t like_bits(uint32_t bits) { return bits < 8 && kDotsInPairs ? 6 : 8; }

// The words of a group in a chunk.
struct GroupWords {
  uint32_t words;  // of each class
  uint32_t classes;
};

// Asks for the rows of the next tile, line by line, while one is multiplied: a tile begins with a line of
// each of its rows, which nothing foresees.
class NextTile {
 public:
  // The tile after that from row `first`, if there is one, in at least `times` calls.
  NextTile(const Matrix& w, uint32_t first, uint64_t times)
      : line_(w.row(least(first + kTileRows, w.out))),
        end_(w.row(least(first + 2 * kTileRows, w.out))),
        share_(uint32_t((kTileRows * w.row_bytes << kBits) / (kLine * times))) {}

  void ask() {
    for (due_ += share_; due_ >> kBits > 0 && line_ < end_; due_ -= 1u << kBits, line_ += kLine)
      __builtin_prefetch(line_);
  }

 private:
  static constexpr uint32_t kBits = 8;
  const uint8_t* line_;
  const uint8_t* const end_;
  const uint32_t share_;  // lines of a call, in units of 2^-kBits
  uint32_t due_ = 0;
};

// sums[t, row of the tile] += chunk . x[t] for a few tokens; x starts at the chunk's first column. A run has
// `run` words, and a group several of them unless it is `single`.
template <uint32_t bits, uint32_t run, bool single, uint32_t planes, uint32_t tokens>
[[gnu::noinline]] static void multiply_runs(const IntegerChunk& chunk, uint32_t groups, GroupWords group,
                                            const Activations& x, NextTile& next, float* sums) {
  constexpr uint32_t kTogether = least(planes, kPlanesAtOnce);
  static_assert(planes % kTogether == 0);
  const uint32_t classes = single ? 1 : group.classes;
  F32 acc[tokens][kTileVectors];
#pragma GCC unroll 8
  for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
    for (uint32_t v = 0; v < kTileVectors; ++v) acc[t][v] = load_floats(sums + t * kTileRows + v * kLanes);
  for (uint32_t g = 0; g < groups; ++g) {
    next.ask();
    F32 dots[tokens][kTileVectors];
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; p += kTogether) {
      IntegerSums<bits, kTogether, tokens> total;
      const auto add = [&](uint32_t word, uint32_t c) __attribute__((always_inline)) {
        const uint32_t first = word / kLanes * classes, lane = word % kLanes;
        total.template add<run>(&chunk.codes[0][(first + c) * kLanes + lane], kIntegerChunk / 4,
                                x.planes + (first * planes + p * classes + c) * kBytes + lane * 4,
                                x.row_bytes, classes * kBytes);
      };
      if constexpr (single)
        add(g * run, 0);
      else
        for (uint32_t word = g * group.words; word < (g + 1) * group.words; word += run)
          for (uint32_t c = 0; c < classes; ++c) add(word, c);
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < kTileVectors; ++v)
#pragma GCC unroll 3
          for (uint32_t i = 0; i < kTogether; ++i)
            dots[t][v] = p + i == 0 ? total.of(i, v, t) : fused(dots[t][v], splat(256), total.of(i, v, t));
    }
#pragma GCC unroll 8
    for (uint32_t t = 0; t < tokens; ++t) {
      const F32 scale = splat(x.scales[t * x.stride + g]), sum_of_x = splat(x.sums[t * x.stride + g]);
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

// The same for groups of any size. Where integers are not that fast, a loop costs little, and short runs make
// little code.
template <uint32_t bits, uint32_t planes, uint32_t tokens>
static void multiply_integer_chunk(const IntegerChunk& chunk, uint32_t groups, GroupWords group,
                                   const Activations& x, NextTile& next, float* sums) {
  const auto multiply = [&](auto loop) { loop(chunk, groups, group, x, next, sums); };
  if constexpr (kFastIntegers)
    if (group.words >= 8)
      return multiply(group.classes == 1 && group.words == 8 ? multiply_runs<bits, 8, true, planes, tokens>
                                                             : multiply_runs<bits, 8, false, planes, tokens>);
  if constexpr (kFastIntegers || kLanes == 4)
    if (group.words >= 4) return multiply(multiply_runs<bits, 4, false, planes, tokens>);
  multiply(multiply_runs<bits, 2, false, planes, tokens>);
}

// Tokens at once: sums of three planes need more registers.
template <uint32_t planes>
constexpr uint32_t kTokensAtOnce = planes == 1 ? kIntegerTokens : 4;

// As MultiplyTile says, of what `load` makes of a matrix.
template <typename Q, uint32_t planes>
[[gnu::noinline]] static void multiply_loaded(LoadChunk load, const Matrix& w, uint32_t first,
                                              const Activations& x, uint64_t row, uint32_t tokens,
                                              float* sums) {
  constexpr uint32_t kBits = like_bits(kDotBits<Q>);
  using O = Order<Q::kBits>;
  const GroupWords group = {(1u << w.group_shift) / O::kLaneValues, O::kClasses};
  NextTile next(w, first,
                uint64_t(w.groups) * ((tokens + kTokensAtOnce<planes> - 1) / kTokensAtOnce<planes>));
  IntegerChunk chunk;
  std::memset(sums, 0, sizeof(float) * tokens * kTileRows);
  for (uint32_t begin = 0; begin < w.in; begin += kIntegerChunk) {
    load(w, first, begin, chunk);
    const uint32_t groups = least(kIntegerChunk, w.in - begin) >> w.group_shift;
    const Activations own = x.from(row).from_column(begin, w.group_shift, planes);
    const auto multiply = [&](auto multiply_few, uint32_t t) {
      multiply_few(chunk, groups, group, own.from(t), next, sums + uint64_t(t) * kTileRows);
    };
    uint32_t t = 0;
    constexpr uint32_t kMost = kTokensAtOnce<planes>;
    for (; t + kMost <= tokens; t += kMost) multiply(multiply_integer_chunk<kBits, planes, kMost>, t);
    for (; t + 4 <= tokens; t += 4) multiply(multiply_integer_chunk<kBits, planes, 4>, t);
    for (; t + 2 <= tokens; t += 2) multiply(multiply_integer_chunk<kBits, planes, 2>, t);
    for (; t < tokens; ++t) multiply(multiply_integer_chunk<kBits, planes, 1>, t);
  }
  const uint32_t rows = least(kTileRows, w.out - first);
  const ReadValues values = w.reader ? ReadValues{read_block, w.reader->block} : kReadValues<Q>;
  for (uint32_t t = 0; t < tokens; ++t) {
    float* own = sums + uint64_t(t) * kTileRows;
    I32 found = {};
    for (uint32_t i = 0; i < kTileRows; i += kLanes) found |= doubtful(load_floats(own + i));
    if (any(found)) compute_again(w, first, rows, values, {x.from(row + t), planes, O::kByteOrder}, own);
  }
}

// As MultiplyTile says.
template <typename Q, uint32_t planes, LoadChunk load = load_integer_chunk<Q>>
static void multiply_integer_tile(const Matrix& w, uint32_t first, const Activations& x, uint64_t row,
                                  uint32_t tokens, float* sums) {
  multiply_loaded<Q, planes>(load, w, first, x, row, tokens, sums);
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
