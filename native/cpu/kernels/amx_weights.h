// Rows of a quantised matrix as terms of bfloats, for tiles of AMX.
#pragma once

#include "cpu/kernels/amx.h"
#include "cpu/kernels/quantized_matrix.h"
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// AMX takes subnormal numbers for zeros. With no weight and no activation above kLargest, what is lost is
// below 2^-126 * kLargest for each column, and below the rounding of a result of at least kLeastSum.
constexpr float kLargest = 0x1p24f;
constexpr float kLeastSum = 0x1p-56f;

PYTURBO_INLINE int32_t bits_of(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// What scales and biases say about the rows of a tile.
struct RowRanges {
  I32 large = {};            // not zero: a weight may be above kLargest, or is not finite
  I32 used[kTileRows] = {};  // not zero: the row may have weights other than zero

  // Adds `groups` <= kLanes groups of a row.
  [[gnu::always_inline]] void add(uint32_t row, F32 scales, F32 biases, uint32_t groups) {
    constexpr float kLargestCode = 512;  // above all codes
    const I32 some = first_lanes(groups), scale = magnitude(scales) & some, bias = magnitude(biases) & some;
    large |= (scale > bits_of(kLargest / 2 / kLargestCode)) | (bias > bits_of(kLargest / 2));
    used[row] |= scale | bias;
  }

  bool ordinary() const { return !any(large); }
};

// A chunk of a row: a byte for each weight, with the scales and biases of its groups.
struct ChunkRow {
  alignas(64) uint8_t codes[kChunk + kBytes];
  alignas(64) float scales[2 * kLanes];
  alignas(64) float biases[2 * kLanes];
};
static_assert(kChunk / 16 <= kLanes);  // groups

// Reads `values` columns of a row from `begin` on, from arrays of codes and groups, or from GGUF blocks.
using LoadRow = void (*)(const Matrix& w, uint32_t row, uint32_t begin, uint32_t values, ChunkRow& to);

template <typename Q>
static void load_array_row(const Matrix& w, uint32_t row, uint32_t begin, uint32_t values, ChunkRow& to) {
  using O = Order<Q::kBits>;
  static_assert(kChunk % O::kBlock == 0);
  by_scale_type(w, [&](auto type) {
    const GroupVector v =
        load_groups_as<decltype(type)>(w, row, begin >> w.group_shift, values >> w.group_shift, /*offset=*/0);
    store_floats(to.scales, v.scales);
    store_floats(to.biases, v.biases);
  });
  for (uint32_t at = 0; at < values; at += O::kBlock) {
    U8 bytes[O::kClasses];
    unpack_block<Q>(w, row, uint64_t(begin + at) / 8 * Q::kBits, bytes);
    interleave<O::kClasses>(bytes);
    for (uint32_t c = 0; c < O::kClasses; ++c) store_vector(to.codes + at + c * kBytes, bytes[c]);
  }
}

static inline void load_block_row(const Matrix& w, uint32_t row, uint32_t begin, uint32_t values,
                                  ChunkRow& to) {
  const Reader& reader = *w.reader;
  reader.read(w.row(row) + uint64_t(begin / reader.block) * reader.block_bytes, values / reader.block,
              to.codes, to.scales, to.biases);
}

// Converts columns [begin, begin + values) of some rows of a chunk to terms, as multiply_terms reads them.
//   to: [values / kTermStep, terms, 2, kTileValues]
template <typename Q, uint32_t terms>
static void convert_rows(const ChunkRow* chunk, uint32_t rows, uint32_t begin, uint32_t values,
                         uint32_t shift, uint16_t* to) {
  for (uint32_t row = 0; row < rows; ++row) {
    const ChunkRow& from = chunk[row];
    uint16_t* target = to + row * kTermStep;
    for (uint32_t at = begin; at < begin + values; at += kTermStep, target += terms * 2 * kTileValues) {
      F32 halves[2];
#pragma GCC unroll 2
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t column = at + half * kLanes, group = column >> shift;
        I32 bytes;
        widen_all(load_vector<U8x16>(from.codes + column), &bytes);
        halves[half] = fused(numbers<Q>(bytes), splat(from.scales[group]), splat(from.biases[group]));
      }
      U32 pairs[terms];
      if constexpr (terms == kTerms)
        cut_terms(halves[0], halves[1], pairs);
      else
        split_terms<terms>(halves[0], halves[1], pairs);
#pragma GCC unroll 3
      for (uint32_t term = 0; term < terms; ++term)
        store_vector(target + term * 2 * kTileValues, pairs[term]);
    }
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
