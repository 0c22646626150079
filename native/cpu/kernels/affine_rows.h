// Rows of a quantised matrix times few rows of activations. The arithmetic of one result does not depend on
// the other rows and tokens: per block an exact integer dot product, scaled and added to kLanes partial sums.
#pragma once

#include "cpu/kernels/affine_matrix.h"

namespace pyturbo::cpu::PYTURBO_ISA {

constexpr uint32_t kGroupChunk = 256;       // groups whose scales are prepared at a time
constexpr uint32_t kPrefetchBytes = 16384;  // how far ahead weights are asked for, at least

// Whole passes of `rows` rows: what one row asks for, another does not.
PYTURBO_INLINE uint64_t prefetch_distance(const Matrix& w, uint32_t rows) {
  const uint64_t pass = rows * w.row_bytes;
  return pass >= kPrefetchBytes ? pass : (kPrefetchBytes + pass - 1) / pass * pass;
}

// Lane -> group of a block, as an index into the groups that start there.
template <uint32_t bits>
PYTURBO_INLINE I32 lane_groups(uint32_t group_shift) {
  I32 index;
  for (uint32_t l = 0; l < kLanes; ++l) index[l] = int32_t((l * Order<bits>::kLaneValues) >> group_shift);
  return index;
}

// The dot products of a block in each lane, as floats.
template <uint32_t bits, uint32_t planes>
PYTURBO_INLINE F32 dot_block(const U8* codes, const S8* x) {
  constexpr uint32_t kClasses = Order<bits>::kClasses;
  // 8-bit weights need more than 32 bits for 24-bit activations: the high plane is added as a float.
  constexpr uint32_t kFirst = bits == 8 && planes == 3 ? 1 : 0;
  I32 total = {};
#pragma GCC unroll 3
  for (uint32_t plane = kFirst; plane < planes; ++plane) {
    if (plane > kFirst) total <<= 8;
#pragma GCC unroll 4
    for (uint32_t c = 0; c < kClasses; ++c) total = dot<bits>(total, codes[c], x[plane * kClasses + c]);
  }
  if constexpr (kFirst == 0) return to_float(total);
  return fused(to_float(dot<bits>(I32{}, codes[0], x[0])), splat(65536), to_float(total));
}

// Scale of weight times scale of activation, for a chunk of groups.
template <uint32_t rows, uint32_t tokens>
using ChunkScales = float[rows][tokens][kGroupChunk + kLanes];

// Groups [first, last): their scales, and what their biases add to the sums.
template <uint32_t bits, uint32_t rows, uint32_t tokens>
PYTURBO_INLINE void prepare_groups(const Matrix& w, uint32_t row, const Activations& x, uint32_t first,
                                   uint32_t last, ChunkScales<rows, tokens>& scales,
                                   F32 (&acc)[rows][tokens]) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t g = first; g < last; g += kLanes) {
      const GroupVector v = load_groups(w, row + r, g, kCodeOffset<bits>);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        const uint64_t place = t * x.stride + g;
        store_floats(scales[r][t] + (g - first), v.scales * load_floats(x.scales + place));
        acc[r][t] = fused(v.biases, load_floats(x.sums + place), acc[r][t]);
      }
    }
  }
}

// One block: the codes of each row times x, scaled from group `group` of the chunk on.
template <uint32_t bits, uint32_t planes, uint32_t rows, uint32_t tokens>
PYTURBO_INLINE void add_block(const U8 (&codes)[rows][Order<bits>::kClasses], const Activations& x,
                              uint32_t block, const ChunkScales<rows, tokens>& scales, uint32_t group,
                              I32 index, F32 (&acc)[rows][tokens]) {
  using O = Order<bits>;
  const int8_t* from = x.planes + uint64_t(block) * planes * O::kBlock;
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t) {
    S8 bytes[planes * O::kClasses];
#pragma GCC unroll 12
    for (uint32_t i = 0; i < planes * O::kClasses; ++i)
      bytes[i] = load_vector<S8>(from + t * x.row_bytes + i * kBytes);
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; ++r)
      acc[r][t] =
          fused(dot_block<bits, planes>(codes[r], bytes), pick(scales[r][t] + group, index), acc[r][t]);
  }
}

// y[t * y_stride + r] = row `row` + r of w times x[t].
template <uint32_t bits, uint32_t planes, uint32_t rows, uint32_t tokens>
static void multiply_block(const Matrix& w, uint32_t row, const Activations& x, float* y, uint64_t y_stride) {
  using O = Order<bits>;
  alignas(64) ChunkScales<rows, tokens> scales;
  const I32 index = lane_groups<bits>(w.group_shift);
  F32 acc[rows][tokens] = {};
  U8 codes[rows][O::kClasses];
  const uint64_t ahead = prefetch_distance(w, rows);
  for (uint32_t first = 0; first < w.groups; first += kGroupChunk) {
    const uint32_t last = least(first + kGroupChunk, w.groups);
    prepare_groups<bits, rows, tokens>(w, row, x, first, last, scales, acc);
    const uint32_t values = last << w.group_shift;
    uint32_t block = (first << w.group_shift) / O::kBlock;
    for (; block < values / O::kBlock; ++block) {
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r) {
        const uint8_t* from = w.row(row + r) + uint64_t(block) * O::kBlockBytes;
        __builtin_prefetch(from + ahead);
        unpack<bits>(from, codes[r]);
      }
      const uint32_t group = (block * O::kBlock >> w.group_shift) - first;
      add_block<bits, planes, rows, tokens>(codes, x, block, scales, group, index, acc);
    }
    if (values % O::kBlock == 0) continue;
    for (uint32_t r = 0; r < rows; ++r)
      unpack_block<bits>(w, row + r, uint64_t(block) * O::kBlockBytes, codes[r]);
    const uint32_t group = (block * O::kBlock >> w.group_shift) - first;
    add_block<bits, planes, rows, tokens>(codes, x, block, scales, group, index, acc);
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t) {
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; ++r) y[t * y_stride + r] = sum(acc[r][t]);
  }
}

// y[t, r] = row first + r of w times x[t], for `rows` rows and a few tokens.
template <uint32_t bits, uint32_t planes, uint32_t tokens>
static void multiply_few(const Matrix& w, uint32_t first, uint32_t rows, const Activations& x, float* y,
                         uint64_t y_stride) {
  constexpr uint32_t kRows = tokens == 1 ? 4 : tokens == 2 ? 2 : 1;
  uint32_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    multiply_block<bits, planes, kRows, tokens>(w, first + r, x, y + r, y_stride);
  for (; r < rows; ++r) multiply_block<bits, planes, 1, tokens>(w, first + r, x, y + r, y_stride);
}

template <uint32_t bits, uint32_t planes>
static void multiply_rows(const Matrix& w, uint32_t first, uint32_t rows, const Activations& x,
                          uint32_t tokens, float* y, uint64_t y_stride) {
  uint32_t t = 0;
  for (; t + 4 <= tokens; t += 4)
    multiply_few<bits, planes, 4>(w, first, rows, x.from(t), y + t * y_stride, y_stride);
  for (; t + 2 <= tokens; t += 2)
    multiply_few<bits, planes, 2>(w, first, rows, x.from(t), y + t * y_stride, y_stride);
  for (; t < tokens; ++t)
    multiply_few<bits, planes, 1>(w, first, rows, x.from(t), y + t * y_stride, y_stride);
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
