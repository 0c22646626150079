// Attention of a few rows, which are (query, head) pairs of one key head, over a compressed cache.
#pragma once

#include "cpu/kernels/attention.h"
#include "cpu/kernels/cache_rows.h"
#include "cpu/kernels/turbo_tile.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kQueryRows = 4 * kTileTokens;  // at most

// Scratch memory of attend. The caller fills `queries`; sums, top and total are results.
struct TurboAttending {
  TileChunk chunk;
  TileWords words;
  alignas(64) float scores[kQueryRows * kKeys];                         // [row, key]
  alignas(64) float queries[kQueryRows][kMaxDim];                       // [row, column]
  alignas(64) float sums[kMaxDim / kTileRows][kQueryRows * kTileRows];  // [tile of columns][row, column]
  float top[kQueryRows], total[kQueryRows];  // the largest score, the sum of weights
  float offsets[kQueryRows];                 // query . ones: added to a score by a mean of 1
  float means[kQueryRows];                   // sum of weighted means of values
  KeyRange seen[kQueryRows];                 // in the tile

  // y = the sums of row `row`, times a factor.
  template <typename T>
  void store(uint32_t row, uint32_t dim, float factor, T* y) const {
    for (uint32_t i = 0; i < dim; i += kLanes)
      store_floats(y + i, load_floats(sums[i / kTileRows] + row * kTileRows + i % kTileRows) * factor);
  }
};

// Turns products of a row with the keys of a tile into weights of their values; those of keys that it does
// not see are 0. Returns the factor of the row's sums so far.
static inline float weigh_row(const TurboCache& c, const float* factors, const float* means, uint32_t row,
                              TurboAttending& w) {
  const I32 none = (I32)splat(kNoScore);
  float* scores = w.scores + row * kKeys;
  F32 own[kTileVectors];
  I32 visible[kTileVectors];
  F32 most = (F32)none;
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    I32 lane;
    for (uint32_t l = 0; l < kLanes; ++l) lane[l] = int32_t(v * kLanes + l);
    visible[v] = (lane >= int32_t(w.seen[row].begin)) & (lane < int32_t(w.seen[row].end));
    F32 score = load_floats(scores + v * kLanes) * load_floats(factors + v * kLanes);
    if (means) score = fused(load_floats(means + v * kLanes), splat(w.offsets[row]), score);
    score = soft_cap(score * c.scale, c.cap);
    own[v] = visible[v] ? score : (F32)none;
    most = own[v] > most ? own[v] : most;  // a NaN never wins
  }
  const float higher = larger_number(w.top[row], largest(most));
  const float kept = higher == w.top[row] ? 1.0f : softmax_weight(w.top[row], higher);
  F32 sums = {};
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const F32 weights = (F32)((I32)softmax_weights(own[v], higher) & visible[v]);
    store_floats(scores + v * kLanes, weights);
    sums += weights;
  }
  w.total[row] = __builtin_fmaf(w.total[row], kept, sum(sums));
  w.top[row] = higher;
  return kept;
}

static inline void scale_row(TurboAttending& w, uint32_t row, uint32_t dim, float factor) {
  if (factor == 1.0f) return;
  w.means[row] *= factor;
  for (uint32_t begin = 0; begin < dim; begin += kTileRows)
    for (uint32_t i = 0; i < kTileRows; i += kLanes) {
      float* sums = w.sums[begin / kTileRows] + row * kTileRows + i;
      store_floats(sums, load_floats(sums) * factor);
    }
}

// Weights times the factors of the values of a tile. A factor that is not finite must not reach rows
// that do not see it.
static inline void scale_weights(const TurboTile& tile, uint32_t row, TurboAttending& w) {
  F32 moved = {};
  for (uint32_t i = 0; i < kKeys; i += kLanes) {
    I32 lane;
    for (uint32_t l = 0; l < kLanes; ++l) lane[l] = int32_t(i + l);
    const I32 visible = (lane >= int32_t(w.seen[row].begin)) & (lane < int32_t(w.seen[row].end));
    float* weights = w.scores + row * kKeys + i;
    const F32 weight = load_floats(weights);
    moved += (F32)((I32)(weight * load_floats(tile.means + i)) & visible);
    store_floats(weights, (F32)((I32)(weight * load_floats(tile.factors + i)) & visible));
  }
  w.means[row] += sum(moved);
}

// The tile's keys that row r sees are those of `all`, cut to [first, last).
PYTURBO_INLINE KeyRange in_tile(KeyRange all, uint32_t first, uint32_t last) {
  const uint32_t begin = all.begin > first ? least(all.begin, last) - first : 0;
  const uint32_t end = all.end > first ? least(all.end, last) - first : 0;
  return {begin, end > begin ? end : begin};
}

// Rows for which codes are unpacked where they are used, four rows at a time; for more, tiles take less time.
template <uint32_t bits>
constexpr uint32_t kRowsInPlace = bits == 8                  ? 2 * kFewRows
                                  : kLanes == 16             ? 3
                                  : kLanes == 8 && bits <= 4 ? 2
                                                             : 0;

// Calls use<count>(first) for all rows if there are at most kRowsInPlace. Returns whether it did.
template <uint32_t bits, typename Use>
PYTURBO_INLINE bool in_place(uint32_t rows, const Use& use) {
  if constexpr (kRowsInPlace<bits> > 0) {
    if (rows <= kRowsInPlace<bits>) {
      by_few_rows(rows, use);
      return true;
    }
  }
  return false;
}

template <uint32_t bits>
static void multiply_keys(const TurboCache& c, const TurboTile& tile, uint32_t rows, TurboAttending& w) {
  const bool done = in_place<bits>(rows, [&]<uint32_t count>(uint32_t r) {
    score_few<count>(tile.template coded_rows<bits>(), tile.count, c.dim, w.queries[r], kMaxDim,
                     w.scores + r * kKeys);
  });
  if (done) return;
  load_words(tile, c.keys.words, w.words);
  for (uint32_t begin = 0; begin < c.dim; begin += kChunk) {
    const uint32_t columns = least(kChunk, c.dim - begin);
    expand_keys<bits>(w.words, begin, columns, w.chunk);
    multiply_rows_of(w.chunk, columns, w.queries[0] + begin, kMaxDim, rows, w.scores);
  }
}

template <uint32_t bits>
static void add_values(const TurboCache& c, const TurboTile& tile, uint32_t rows, TurboAttending& w) {
  const bool done = in_place<bits>(rows, [&]<uint32_t count>(uint32_t r) {
    add_values_few<count>(tile.template coded_rows<bits>(), tile.count, c.dim, w.scores + r * kKeys,
                          w.sums[0] + r * kTileRows, sizeof(w.sums[0]) / sizeof(float));
  });
  if (done) return;
  for (uint32_t begin = 0; begin < c.dim; begin += kTileRows) {
    expand_values<bits>(tile, begin, c.dim, w.chunk);
    multiply_rows_of(w.chunk, tile.count, w.scores, kKeys, rows, w.sums[begin / kTileRows]);
  }
}

static inline void multiply_keys_of(const TurboCache& c, const TurboTile& tile, uint32_t rows,
                                    TurboAttending& w) {
  PYTURBO_BY_WIDTH(c.keys.bits, multiply_keys, c, tile, rows, w);
}
static inline void add_values_of(const TurboCache& c, const TurboTile& tile, uint32_t rows,
                                 TurboAttending& w) {
  PYTURBO_BY_WIDTH(c.values.bits, add_values, c, tile, rows, w);
}

// Keys are in the cache alone.
struct NoMoreScores {
  static constexpr bool kAny = false;
  void operator()(KeyRange, TurboAttending&) const {}
};

// Factors of keys that are not scaled: ones.
inline constexpr struct TileOnes {
  alignas(64) float values[kKeys];
  constexpr TileOnes() : values() {
    for (uint32_t i = 0; i < kKeys; ++i) values[i] = 1.0f;
  }
} kTileOnes;

// Keys [first, last) of the rows of a cache, row r sees those of seen(r).
template <typename Seen, typename MoreScores>
static void attend_rows(const TurboCache& c, uint32_t rows, KeyRange keys, const Seen& seen,
                        const MoreScores& more_scores, TurboAttending& w) {
  std::memset(w.scores, 0, sizeof(float) * rows * kKeys);
  const TurboTile tile(c, c.keys, keys), values(c, c.values, keys);
  values.prefetch(c.values.words);
  multiply_keys_of(c, tile, rows, w);
  if (MoreScores::kAny) {
    for (uint32_t i = 0; i < rows * kKeys; i += kLanes)
      store_floats(w.scores + i, load_floats(w.scores + i) * load_floats(tile.factors + i % kKeys));
    more_scores(keys, w);
  }
  const float* factors = MoreScores::kAny ? kTileOnes.values : tile.factors;
  for (uint32_t r = 0; r < rows; ++r) {
    w.seen[r] = in_tile(seen(r), keys.begin, keys.end);
    const float* means = c.keys.means ? tile.means : nullptr;
    scale_row(w, r, c.dim, weigh_row(c, factors, means, r, w));
    scale_weights(values, r, w);
  }
  add_values_of(c, values, rows, w);
}

// The same for keys with exact rows: the last ones of the cache and those of the chunk.
template <typename Seen, typename MoreScores>
static void attend_exact(const TurboCache& c, uint32_t rows, KeyRange keys, const Seen& seen,
                         const MoreScores& more_scores, TurboAttending& w) {
  const uint32_t count = keys.end - keys.begin;
  std::memset(w.scores, 0, sizeof(float) * rows * kKeys);
  for (uint32_t begin = 0; begin < c.dim; begin += kChunk) {
    const uint32_t columns = least(kChunk, c.dim - begin);
    load_exact_keys(c, keys.begin, count, begin, columns, w.chunk);
    multiply_rows_of(w.chunk, columns, w.queries[0] + begin, kMaxDim, rows, w.scores);
  }
  more_scores(keys, w);
  for (uint32_t r = 0; r < rows; ++r) {
    w.seen[r] = in_tile(seen(r), keys.begin, keys.end);
    scale_row(w, r, c.dim, weigh_row(c, kTileOnes.values, nullptr, r, w));
  }
  for (uint32_t begin = 0; begin < c.dim; begin += kTileRows) {
    float* sums = w.sums[begin / kTileRows];
    if (load_exact_values(c, keys.begin, count, begin, w.chunk)) {
      multiply_rows_of(w.chunk, count, w.scores, kKeys, rows, sums);
      continue;
    }
    for (uint32_t r = 0; r < rows; ++r)  // 0 * inf is not 0: rows add only the keys that they see
      for (uint32_t v = 0; v < kTileVectors; ++v) {
        float* place = sums + r * kTileRows + v * kLanes;
        F32 acc = load_floats(place);
        for (uint32_t j = w.seen[r].begin; j < w.seen[r].end; ++j)
          acc = fused(w.chunk.values[j][v], splat(w.scores[r * kKeys + j]), acc);
        store_floats(place, acc);
      }
  }
}

// The rows over keys [keys.begin, keys.end), of which row r sees those of seen(r). more_scores(tile, w) adds
// to w.scores the products of key parts outside the cache; it may use w.chunk.
template <typename Seen, typename MoreScores = NoMoreScores>
static void attend(const TurboCache& c, uint32_t rows, KeyRange keys, const Seen& seen, TurboAttending& w,
                   const MoreScores& more_scores = {}) {
  for (uint32_t r = 0; r < rows; ++r) {
    w.top[r] = kNoScore;
    w.total[r] = w.means[r] = w.offsets[r] = 0;
    if (!c.ones) continue;
    F32 offset = {};
    for (uint32_t i = 0; i < c.dim; i += kLanes)
      offset = fused(load_floats(w.queries[r] + i), load_floats(c.ones + i), offset);
    w.offsets[r] = sum(offset);
  }
  for (uint32_t begin = 0; begin < c.dim; begin += kTileRows)
    std::memset(w.sums[begin / kTileRows], 0, sizeof(float) * rows * kTileRows);
  uint32_t first = keys.begin;
  for (const uint32_t end = least(keys.end, c.exact); first < end; first += least(kKeys, end - first))
    attend_rows(c, rows, {first, first + least(kKeys, end - first)}, seen, more_scores, w);
  for (; first < keys.end; first += least(kKeys, keys.end - first))
    attend_exact(c, rows, {first, first + least(kKeys, keys.end - first)}, seen, more_scores, w);
  if (!c.ones) return;
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t i = 0; i < c.dim; i += kLanes) {
      float* place = w.sums[i / kTileRows] + r * kTileRows + i % kTileRows;
      store_floats(place, fused(splat(w.means[r]), load_floats(c.ones + i), load_floats(place)));
    }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
