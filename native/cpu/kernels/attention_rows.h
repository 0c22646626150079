// Attention of a few rows, which are (query, head) pairs of one key head, over a stretch of keys. Tiles of
// keys and of values are made vectors of floats and multiplied by tile.h: first lanes are keys, then columns
// of the head.
#pragma once

#include "cpu/kernels/attention.h"
#include "cpu/kernels/key_range.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kMaxDim = 512;
constexpr uint32_t kKeys = kTileRows;             // of a tile
constexpr uint32_t kQueryRows = 4 * kTileTokens;  // at most
constexpr uint32_t kLineBytes = 64;               // of the cache

// The keys and values of a launch.
struct Cache {
  const void *k, *v;
  uint32_t capacity, kv_heads, dim;
  float scale, cap;
};

// Where the keys of a tile start in their cache, in elements.
struct KeyTile {
  uint32_t count;
  uint64_t offsets[kKeys];

  KeyTile(const Cache& c, uint32_t kv_head, KeyRange keys) : count(keys.end - keys.begin) {
    uint32_t row = keys.begin % c.capacity;
    for (uint32_t j = 0; j < count; ++j) {
      offsets[j] = (uint64_t(row) * c.kv_heads + kv_head) * c.dim;
      if (++row == c.capacity) row = 0;
    }
  }
};

// Prefetches the rows of a tile, which are too far apart for the hardware to do so.
template <typename T>
PYTURBO_INLINE void prefetch_rows(const void* cache, const KeyTile& tile, uint32_t dim) {
  for (uint32_t j = 0; j < tile.count; ++j) {
    const T* row = static_cast<const T*>(cache) + tile.offsets[j];
    for (uint32_t i = 0; i < dim; i += kLineBytes / sizeof(T)) __builtin_prefetch(row + i);
  }
}

// Scratch memory of attend and attend_few. The caller fills `queries`; the others are results.
struct AttentionRows {
  TileChunk chunk;
  float scores[kQueryRows * kKeys];    // [row, key]
  float queries[kQueryRows][kMaxDim];  // [row, column]
  float sums[kMaxDim / kTileRows]
            [kQueryRows * kTileRows];        // of weighted values, [tile of columns][row, column]
  float top[kQueryRows], total[kQueryRows];  // the largest score, the sum of weights
  KeyRange seen[kQueryRows];                 // in the tile

  // Clears the sums of `rows` rows, which have seen no key.
  void begin(uint32_t rows, uint32_t dim) {
    for (uint32_t r = 0; r < rows; ++r) {
      top[r] = kNoScore;
      total[r] = 0;
    }
    for (uint32_t first = 0; first < dim; first += kTileRows)
      clear_row(sums[first / kTileRows], rows * kTileRows);
  }

  // The sums of a row, columns [0, dim).
  void copy_sums(uint32_t row, uint32_t dim, float* to) const {
    for (uint32_t begin = 0; begin < dim; begin += kTileRows)
      copy_row(to + begin, sums[begin / kTileRows] + row * kTileRows, least(kTileRows, dim - begin));
  }
};

// chunk[column, key] of columns [begin, begin + kChunk); past the last key zeros.
template <typename T>
static void load_keys(const Cache& c, const KeyTile& tile, uint32_t begin, TileChunk& chunk) {
  const T* keys = static_cast<const T*>(c.k) + begin;
  const uint32_t columns = least(kChunk, c.dim - begin);
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint32_t first = least(v * kLanes, tile.count), count = least(kLanes, tile.count - first);
    for (uint32_t i = 0; i < columns; i += kLanes) {
      const uint32_t part = least(kLanes, columns - i);
      U8 words[kLanes];
      for (uint32_t l = 0; l < count; ++l) words[l] = (U8)load_some(keys + tile.offsets[first + l] + i, part);
      for (uint32_t l = count; l < kLanes; ++l) words[l] = U8{};
      if (count > 0) transpose(words);
      for (uint32_t l = 0; l < part; ++l) chunk.values[i + l][v] = (F32)words[l];
    }
  }
}

// chunk[key, column] of columns [begin, begin + kTileRows), zeros past the head. False: some value is not
// finite.
template <typename T>
static bool load_values(const Cache& c, const KeyTile& tile, uint32_t begin, TileChunk& chunk) {
  const T* values = static_cast<const T*>(c.v) + begin;
  I32 most = {};
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint32_t left = c.dim - begin > v * kLanes ? least(kLanes, c.dim - begin - v * kLanes) : 0;
    for (uint32_t j = 0; j < tile.count; ++j) {
      const F32 part = left == 0 ? F32{} : load_some(values + tile.offsets[j] + v * kLanes, left);
      chunk.values[j][v] = part;
      most = larger(most, magnitude(part));
    }
  }
  return largest(most) < 0x7f800000;
}

// Turns the scores of a row into weights; those of keys that it does not see are 0. Returns the factor
// of the row's sums so far.
static inline float softmax_row(const Cache& c, float* scores, KeyRange seen, float& top, float& total) {
  const F32 none = splat(kNoScore);
  F32 own[kTileVectors], most = none;
  I32 visible[kTileVectors];
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    I32 lane;
    for (uint32_t l = 0; l < kLanes; ++l) lane[l] = int32_t(v * kLanes + l);
    visible[v] = (lane >= int32_t(seen.begin)) & (lane < int32_t(seen.end));
    own[v] = soft_cap(load_floats(scores + v * kLanes) * c.scale, c.cap);
    own[v] = visible[v] ? own[v] : none;
    most = own[v] > most ? own[v] : most;  // a NaN never wins
  }
  const float higher = larger_number(top, largest(most));
  const float kept = softmax_weight(top, higher);
  F32 sums = {};
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const F32 weights = (F32)((I32)softmax_weights(own[v], higher) & visible[v]);
    store_floats(scores + v * kLanes, weights);
    sums += weights;
  }
  total = __builtin_fmaf(total, kept, sum(sums));
  top = higher;
  return kept;
}

static inline void scale_sums(AttentionRows& w, uint32_t row, uint32_t dim, float factor) {
  if (factor == 1.0f) return;
  for (uint32_t begin = 0; begin < dim; begin += kTileRows)
    for (uint32_t i = 0; i < kTileRows; i += kLanes) {
      float* sums = w.sums[begin / kTileRows] + row * kTileRows + i;
      store_floats(sums, load_floats(sums) * factor);
    }
}

// Adds the values of a tile by the weights in w.scores, for one tile of columns.
static inline void add_values(AttentionRows& w, uint32_t rows, uint32_t keys, bool finite, float* sums) {
  if (finite) return multiply_rows_of(w.chunk, keys, w.scores, kKeys, rows, sums);
  // A value that is not finite must not reach rows that do not see it, and 0 * inf is not 0.
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t v = 0; v < kTileVectors; ++v) {
      float* place = sums + r * kTileRows + v * kLanes;
      F32 acc = load_floats(place);
      for (uint32_t j = w.seen[r].begin; j < w.seen[r].end; ++j)
        acc = fused(w.chunk.values[j][v], splat(w.scores[r * kKeys + j]), acc);
      store_floats(place, acc);
    }
}

// Keys are in the cache alone.
struct NoMoreScores {
  void operator()(KeyRange) const {}
};

// The rows over keys [keys.begin, keys.end), of which row r sees those of seen(r). more_scores(tile) adds to
// w.scores the products of key parts outside the cache; it may use w.chunk.
template <typename T, typename Seen, typename MoreScores = NoMoreScores>
static void attend(const Cache& c, uint32_t kv_head, uint32_t rows, KeyRange keys, const Seen& seen,
                   AttentionRows& w, const MoreScores& more_scores = {}) {
  w.begin(rows, c.dim);
  for (uint32_t first = keys.begin; first < keys.end; first += kKeys) {
    const uint32_t last = least(first + kKeys, keys.end);
    const KeyTile tile(c, kv_head, {first, last});
    prefetch_rows<T>(c.v, tile, c.dim);
    prefetch_rows<T>(c.k, KeyTile(c, kv_head, {last, least(last + kKeys, keys.end)}), c.dim);
    clear_row(w.scores, rows * kKeys);
    for (uint32_t begin = 0; begin < c.dim; begin += kChunk) {
      load_keys<T>(c, tile, begin, w.chunk);
      multiply_rows_of(w.chunk, least(kChunk, c.dim - begin), w.queries[0] + begin, kMaxDim, rows, w.scores);
    }
    more_scores(KeyRange{first, last});
    for (uint32_t r = 0; r < rows; ++r) {
      const KeyRange all = seen(r);
      const uint32_t begin = all.begin > first ? least(all.begin, last) - first : 0;
      const uint32_t end = all.end > first ? least(all.end, last) - first : 0;
      w.seen[r] = {begin, end > begin ? end : begin};
      scale_sums(w, r, c.dim, softmax_row(c, w.scores + r * kKeys, w.seen[r], w.top[r], w.total[r]));
    }
    for (uint32_t begin = 0; begin < c.dim; begin += kTileRows) {
      const bool finite = load_values<T>(c, tile, begin, w.chunk);
      add_values(w, rows, tile.count, finite, w.sums[begin / kTileRows]);
    }
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
