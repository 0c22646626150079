// Attention of a few rows that all see the same keys, as in decode.
#pragma once

#include "cpu/kernels/attention_rows.h"
#include "cpu/kernels/cache_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Whether heads of this size are made of whole vectors.
PYTURBO_INLINE bool can_attend_few(uint32_t dim) { return dim % kLanes == 0; }

// The rows over keys [keys.begin, keys.end), all of which they see.
template <typename T>
static void attend_few(const Cache& c, uint32_t kv_head, uint32_t rows, KeyRange keys, AttentionRows& w) {
  constexpr uint64_t kTileStride = sizeof(w.sums[0]) / sizeof(float);
  w.begin(rows, c.dim);
  const auto tile_at = [&](uint32_t key) {
    return KeyTile(c, kv_head, {key, key + least(kKeys, keys.end - key)});
  };
  for (KeyTile tile = tile_at(keys.begin), next = tile; tile.count > 0; tile = next) {
    next = tile_at(keys.begin += tile.count);
    prefetch_rows<T>(c.v, tile, c.dim);
    prefetch_rows<T>(c.k, next, c.dim);
    const auto key_of = [&](uint32_t j) { return static_cast<const T*>(c.k) + tile.offsets[j]; };
    const auto value_of = [&](uint32_t j) { return static_cast<const T*>(c.v) + tile.offsets[j]; };
    by_few_rows(rows, [&]<uint32_t count>(uint32_t r) {
      score_few<count>(key_of, tile.count, c.dim, w.queries[r], kMaxDim, w.scores + r * kKeys);
    });
    for (uint32_t r = 0; r < rows; ++r)
      scale_sums(w, r, c.dim, softmax_row(c, w.scores + r * kKeys, {0, tile.count}, w.top[r], w.total[r]));
    by_few_rows(rows, [&]<uint32_t count>(uint32_t r) {
      add_values_few<count>(value_of, tile.count, c.dim, w.scores + r * kKeys, w.sums[0] + r * kTileRows,
                            kTileStride);
    });
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
