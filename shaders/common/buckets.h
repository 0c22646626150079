// The rows of a threadgroup in a grouped product: rows are sorted by expert, those of one are a bucket.
#pragma once

#include "tile.h"

// A tile of the bucket of one expert.
struct BucketTile {
  uint expert;
  uint row;   // first row of x
  uint rows;  // 0: nothing to do
};

// Bucket e owns the tiles from offsets[e] / kTileTokens + e on: increasing in e, and enough for any bucket sizes. A
// round of the search reads seven offsets at once and leaves an eighth of the buckets: each waits for memory.
inline BucketTile find_bucket_tile(device const int* offsets, uint experts, uint rows, uint tile) {
  uint low = 0;
  for (uint count = experts; count > 1;) {
    const uint step = (count + 7) / 8;
    uint parts = 0;
#pragma unroll
    for (uint i = 1; i < 8; ++i) {
      const uint e = low + min(i * step, count - 1);
      const bool begun = min(uint(offsets[e]), rows) / kTileTokens + e <= tile;
      parts += begun && i * step < count ? 1 : 0;
    }
    low += parts * step;
    count = min(step, count - parts * step);
  }
  const uint begin = min(uint(offsets[low]), rows);
  const uint end = min(uint(offsets[low + 1]), rows);
  const ulong row = begin + ulong(tile - min(tile, begin / kTileTokens + low)) * kTileTokens;
  return BucketTile{low, uint(row), row < end ? min(kTileTokens, uint(end - row)) : 0};
}
