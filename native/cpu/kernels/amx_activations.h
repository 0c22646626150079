// Rows of activations as terms of bfloats, for tiles of AMX.
#pragma once

#include "cpu/kernels/amx_weights.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// What the largest magnitude of a row allows.
enum class RowKind : uint8_t {
  zeros,     // its products with finite weights are zeros
  ordinary,  // as kLargest says
  extreme,   // a value is above kLargest or not finite
};

// Up to kSide rows of the activations of a launch.
struct TokenBlock {
  uint32_t first, count;
};

// The rows of a launch in blocks.
struct BlockedRows {
  const uint16_t* values;  // [blocks, steps, terms, kTileValues]
  const RowKind* kinds;    // [blocks, kSide]
  uint64_t pitch;          // values of a block
};

// A row as one term holds it; values above kLargest stay.
static inline void round_row(const float* x, uint32_t in, float* to) {
  for (uint32_t i = 0; i < in; i += kLanes) {
    const F32 v = load_floats(x + i);
    store_floats(to + i, magnitude(v) > bits_of(kLargest) ? v : (F32)nearest_bfloat(v));
  }
}

// One block of x [rows, in].
template <uint32_t terms>
static void split_block(const float* x, uint32_t in, const TokenBlock& block, uint16_t* to, RowKind* kinds) {
  I32 most[kSide] = {};
  U8 pairs[terms][kSide] = {};  // of rows past the block any
  for (uint32_t begin = 0; begin < in; begin += kTermStep) {
    for (uint32_t row = 0; row < block.count; ++row) {
      const float* from = x + uint64_t(block.first + row) * in + begin;
      const F32 first = load_floats(from), second = load_floats(from + kLanes);
      most[row] = larger(most[row], larger(magnitude(first), magnitude(second)));
      U32 own[terms];
      split_terms<terms>(first, second, own);
#pragma GCC unroll 3
      for (uint32_t term = 0; term < terms; ++term) pairs[term][row] = (U8)own[term];
    }
    for (uint32_t term = 0; term < terms; ++term, to += kTileValues) {
      transpose(pairs[term]);
      for (uint32_t pair = 0; pair < kSide; ++pair) store_vector(to + pair * kTermStep, pairs[term][pair]);
    }
  }
  for (uint32_t row = 0; row < kSide; ++row) {
    const int32_t largest_bits = largest(most[row]);
    kinds[row] = largest_bits == 0                   ? RowKind::zeros
                 : largest_bits <= bits_of(kLargest) ? RowKind::ordinary
                                                     : RowKind::extreme;
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
