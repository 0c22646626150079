// Tiles of compressed keys and values as vectors of floats. Lanes of a tile of keys are keys: the words of
// their rows are transposed, so that one shift and one lookup give a coordinate of kLanes keys. Lanes of a
// tile of values are coordinates.
#pragma once

#include "cpu/kernels/key_range.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/turbo_codes.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kKeys = kTileRows;  // of a tile

// The keys or the values of one key head of a sequence.
struct TurboHead {
  const uint32_t* packed;  // [capacity, words]
  const Half* scales;      // [capacity]
  const Half* means;       // [capacity], or null
  const float* own;        // row i at i * own_stride
  const Half* recent;      // [recent, dim], or null
  uint32_t bits, words;
};

// The cache of a key head of a sequence; see shaders/turboquant/attend.h.
struct TurboCache {
  TurboHead keys, values;
  const float* ones;
  uint64_t own_stride;
  uint32_t context, exact, recent, capacity, ring_start, dim;
  float scale, cap;
};

// The first key from which on all keys before `context` have exact rows.
static inline uint32_t first_recent(const uint32_t* recent_keys, uint32_t recent, uint32_t context) {
  uint32_t first = context;
  while (recent_keys && first > 0 && context - first < recent &&
         recent_keys[(first - 1) % recent] == first - 1)
    --first;
  return first;
}

// values[j] = the number in row (first + j) % capacity, for j < count; zero for other keys of the tile.
static inline void load_ring(const Half* ring, uint32_t capacity, uint32_t first, uint32_t count,
                             float* values) {
  if (count <= capacity - first) {
    for (uint32_t j = 0; j < kKeys; j += kLanes)
      store_floats(values + j, j < count ? load_some(ring + first + j, least(kLanes, count - j)) : F32{});
    return;
  }
  for (uint32_t j = 0; j < kKeys; ++j) {
    values[j] = j < count ? load_float(ring + (uint64_t(first) + j) % capacity) : 0.0f;
  }
}

// The rows of a tile of keys of a head, with the factors of their codes' centroids_of and the means.
struct TurboTile {
  const uint32_t* rows[kKeys];
  alignas(64) float factors[kKeys];  // zero past the last key
  alignas(64) float means[kKeys];
  uint32_t count;

  TurboTile(const TurboCache& c, const TurboHead& head, KeyRange keys) : count(keys.end - keys.begin) {
    const uint32_t first = uint32_t((uint64_t(c.ring_start) + keys.begin) % c.capacity);
    uint32_t row = first;
    for (uint32_t j = 0; j < kKeys; ++j) {
      rows[j] = head.packed + uint64_t(row) * head.words;
      if (j < count && ++row == c.capacity) row = 0;
    }
    load_ring(head.scales, c.capacity, first, count, factors);
    load_ring(head.means, c.capacity, first, head.means ? count : 0, means);
    for (uint32_t j = 0; j < kKeys; ++j) factors[j] *= code_unit(head.bits);
  }

  // The bytes of row j; past the last key those of any row.
  const uint8_t* codes(uint32_t j) const { return reinterpret_cast<const uint8_t*>(rows[j]); }

  // The rows by their number, as cache_rows.h reads them.
  template <uint32_t bits>
  auto coded_rows() const {
    return [this](uint32_t j) { return CodedRow<bits>{rows[j], 0}; };
  }

  // Prefetches rows of `words` words.
  void prefetch(uint32_t words) const {
    constexpr uint32_t kLineWords = 16;
    for (uint32_t j = 0; j < count; ++j)
      for (uint32_t i = 0; i < words; i += kLineWords) __builtin_prefetch(rows[j] + i);
  }
};

// Words of the rows of a tile: [word][vector], lanes are keys.
struct TileWords {
  U32 values[kMaxWords][kTileVectors];
};

static inline void load_words(const TurboTile& tile, uint32_t words, TileWords& target) {
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint32_t first = least(v * kLanes, tile.count), count = least(kLanes, tile.count - first);
    for (uint32_t w = 0; w < words; w += kLanes) {
      const uint32_t part = least(kLanes, words - w);
      U8 block[kLanes];
      for (uint32_t l = 0; l < kLanes; ++l)
        block[l] =
            l < count ? (U8)load_some(reinterpret_cast<const float*>(tile.rows[first + l]) + w, part) : U8{};
      if (count > 0) transpose(block);
      for (uint32_t l = 0; l < part; ++l) target.values[w + l][v] = (U32)block[l];
    }
  }
}

// chunk[i, key] = centroids of coordinates [begin, begin + columns) of the keys.
template <uint32_t bits>
static void expand_keys(const TileWords& words, uint32_t begin, uint32_t columns, TileChunk& chunk) {
  constexpr uint32_t kUnit = 32;  // codes in `bits` words
  const U32(*from)[kTileVectors] = words.values + begin / kUnit * bits;
  const auto codes_of = [&](uint32_t i, uint32_t v) __attribute__((always_inline)) {
    const uint32_t word = i * bits / 32, shift = i * bits % 32;
    U32 codes = from[word][v] >> shift;
    if (shift + bits > 32) codes |= from[word + 1][v] << (32 - shift);
    return codes;
  };
  for (uint32_t unit = 0; unit < columns; unit += kUnit, from += bits) {
    const uint32_t count = least(kUnit, columns - unit);
    if constexpr (kAsBytes<bits>) {
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kUnit; i += 2) {
        if (i >= count) break;
        F32 vectors[4];
        look_up_words(codes_of(i, 0), codes_of(i, 1), codes_of(i + 1, 0), codes_of(i + 1, 1), vectors);
        for (uint32_t j = 0; j < 4; ++j) chunk.values[unit + i + j / 2][j % 2] = vectors[j];
      }
    } else {
#pragma GCC unroll 32
      for (uint32_t i = 0; i < kUnit; ++i) {
        if (i >= count) break;
        for (uint32_t v = 0; v < kTileVectors; ++v)
          chunk.values[unit + i][v] = centroids_of<bits>(codes_of(i, v));
      }
    }
  }
}

// chunk[key, i] = centroids of coordinates [begin, begin + kTileRows), zeros past the row.
template <uint32_t bits>
static void expand_values(const TurboTile& tile, uint32_t begin, uint32_t dim, TileChunk& chunk) {
  if constexpr (kAsBytes<bits>) {
    for (uint32_t j = 0; j < tile.count; j += 2) {  // the row after the last one may be any
      const auto at = [&](uint32_t row) { return tile.codes(row) + begin * 6 / 8; };
      F32 vectors[4];
      look_up_rows(at(j), at(j + 1), vectors);
      for (uint32_t i = 0; i < 4; ++i) chunk.values[j + i / 2][i % 2] = vectors[i];
    }
    return;
  }
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint32_t d = begin + v * kLanes;
    for (uint32_t j = 0; j < tile.count; ++j)
      chunk.values[j][v] = d < dim ? centroids_at<bits>(tile.rows[j], d) : F32{};
  }
}

// Columns [column, column + kLanes) of the exact row of a key.
PYTURBO_INLINE F32 load_exact(const TurboCache& c, const TurboHead& head, uint32_t key, uint32_t column) {
  if (key < c.context) return load_floats(head.recent + uint64_t(key % c.recent) * c.dim + column);
  return load_floats(head.own + (key - c.context) * c.own_stride + column);
}

// The same two for exact rows, from key `first` on.
static inline void load_exact_keys(const TurboCache& c, uint32_t first, uint32_t keys, uint32_t begin,
                                   uint32_t columns, TileChunk& chunk) {
  for (uint32_t v = 0; v < kTileVectors; ++v)
    for (uint32_t i = 0; i < columns; i += kLanes) {
      U8 block[kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        const uint32_t key = v * kLanes + l;
        block[l] = key < keys ? (U8)load_exact(c, c.keys, first + key, begin + i) : U8{};
      }
      transpose(block);
      for (uint32_t l = 0; l < kLanes; ++l) chunk.values[i + l][v] = (F32)block[l];
    }
}

// False: some value is not finite.
static inline bool load_exact_values(const TurboCache& c, uint32_t first, uint32_t keys, uint32_t begin,
                                     TileChunk& chunk) {
  I32 most = {};
  for (uint32_t v = 0; v < kTileVectors; ++v) {
    const uint32_t d = begin + v * kLanes;
    for (uint32_t j = 0; j < keys; ++j) {
      const F32 part = d < c.dim ? load_exact(c, c.values, first + j, d) : F32{};
      chunk.values[j][v] = part;
      most = larger(most, magnitude(part));
    }
  }
  return largest(most) < 0x7f800000;
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
