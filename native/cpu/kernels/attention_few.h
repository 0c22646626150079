// Attention of a few rows that all see the same keys, as in decode. Keys and values are converted where they
// are used, for up to kFewRows rows: lanes are columns of the head, and the sums of kLanes keys become scores
// together.
#pragma once

#include "cpu/kernels/attention_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kFewRows = 4;
constexpr uint32_t kAtOnce = kLanes == 8 ? 2 : 4;  // keys, or vectors of columns: sums stay in registers

// Whether heads of this size are made of whole vectors.
PYTURBO_INLINE bool can_attend_few(uint32_t dim) { return dim % kLanes == 0; }

// w.scores of `rows` rows from `first` on. Past the last key they are not valid: those of its vector repeat
// its own, others are not written.
template <uint32_t rows, typename T>
static void score_few(const Cache& c, const KeyTile& tile, uint32_t first, AttentionRows& w) {
  for (uint32_t begin = 0; begin < tile.count; begin += kLanes) {
    F32 products[rows][kLanes];
    for (uint32_t l = 0; l < kLanes; l += kAtOnce) {
      const T* keys[kAtOnce];
      for (uint32_t j = 0; j < kAtOnce; ++j)
        keys[j] = static_cast<const T*>(c.k) + tile.offsets[least(begin + l + j, tile.count - 1)];
      F32 sums[rows][kAtOnce] = {};
      for (uint32_t i = 0; i < c.dim; i += kLanes) {
        F32 own[kAtOnce];
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kAtOnce; ++j) own[j] = load_floats(keys[j] + i);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; ++r) {
          const F32 query = load_floats(w.queries[first + r] + i);
#pragma GCC unroll 4
          for (uint32_t j = 0; j < kAtOnce; ++j) sums[r][j] = fused(own[j], query, sums[r][j]);
        }
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kAtOnce; ++j) products[r][l + j] = sums[r][j];
    }
    for (uint32_t r = 0; r < rows; ++r)
      store_floats(w.scores + (first + r) * kKeys + begin, sums_of(products[r]));
  }
}

// Adds the values of a tile, by the weights in w.scores, to the sums of `columns` vectors from `begin` on.
template <uint32_t rows, uint32_t columns, typename T>
static void add_columns(const Cache& c, const KeyTile& tile, uint32_t first, uint32_t begin,
                        AttentionRows& w) {
  const auto place = [&](uint32_t r, uint32_t v) {
    const uint32_t column = begin + v * kLanes;
    return w.sums[column / kTileRows] + (first + r) * kTileRows + column % kTileRows;
  };
  F32 sums[rows][columns];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (uint32_t v = 0; v < columns; ++v) sums[r][v] = load_floats(place(r, v));
  const float* weights = w.scores + first * kKeys;
  for (uint32_t j = 0; j < tile.count; ++j) {
    const T* values = static_cast<const T*>(c.v) + tile.offsets[j] + begin;
#pragma GCC unroll 4
    for (uint32_t v = 0; v < columns; ++v) {
      const F32 own = load_floats(values + v * kLanes);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r) sums[r][v] = fused(own, splat(weights[r * kKeys + j]), sums[r][v]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (uint32_t v = 0; v < columns; ++v) store_floats(place(r, v), sums[r][v]);
}

template <uint32_t rows, typename T>
static void add_values_few(const Cache& c, const KeyTile& tile, uint32_t first, AttentionRows& w) {
  uint32_t i = 0;
  for (; i + kAtOnce * kLanes <= c.dim; i += kAtOnce * kLanes)
    add_columns<rows, kAtOnce, T>(c, tile, first, i, w);
  for (; i < c.dim; i += kLanes) add_columns<rows, 1, T>(c, tile, first, i, w);
}

// The rows over keys [keys.begin, keys.end), all of which they see.
template <typename T>
static void attend_few(const Cache& c, uint32_t kv_head, uint32_t rows, KeyRange keys, AttentionRows& w) {
  w.begin(rows, c.dim);
  const auto by_rows = [&](auto use) {
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
  };
  const auto tile_at = [&](uint32_t key) {
    return KeyTile(c, kv_head, {key, key + least(kKeys, keys.end - key)});
  };
  for (KeyTile tile = tile_at(keys.begin), next = tile; tile.count > 0; tile = next) {
    next = tile_at(keys.begin += tile.count);
    prefetch_rows<T>(c.v, tile, c.dim);
    prefetch_rows<T>(c.k, next, c.dim);
    by_rows([&]<uint32_t count>(uint32_t r) { score_few<count, T>(c, tile, r, w); });
    for (uint32_t r = 0; r < rows; ++r)
      scale_sums(w, r, c.dim, softmax_row(c, w.scores + r * kKeys, {0, tile.count}, w.top[r], w.total[r]));
    by_rows([&]<uint32_t count>(uint32_t r) { add_values_few<count, T>(c, tile, r, w); });
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
