// The codec of compressed rows: a rotated vector is a scale and, for each coordinate, the index of the nearest
// centroid of a standard normal variable. Coordinate d is centroid * scale, plus mean * ones[d] in rows with
// means, where ones is the rotated vector of ones.
#pragma once

#include <metal_stdlib>
using namespace metal;

#include "tables.h"

constexpr constant uint kMaxDim = 512;
constexpr constant uint kMaxRecent = 32;  // exact rows of a cache, at most

inline constant float* centroids(uint bits) {
  return bits == 2   ? kCentroids2
         : bits == 3 ? kCentroids3
         : bits == 4 ? kCentroids4
         : bits == 6 ? kCentroids6
                     : kCentroids8;
}

// How many of the midpoints between centroids are below x; 0 for NaN.
inline uint nearest(float x, constant float* table, uint bits) {
  uint index = 0;
  for (uint step = 1u << (bits - 1); step > 0; step >>= 1) {
    const uint below = index + step - 1;
    if (x > 0.5f * (table[below] + table[below + 1])) index += step;
  }
  return index;
}

constexpr uint row_words(uint dim, uint bits) { return (dim * bits + 31) / 32; }

// `count` neighbouring codes of a row in one word, the first in its lowest bits: code d has the bits
// [d * bits, d * bits + bits) of the row. count * bits <= 32.
inline uint code_run(device const uint* row, uint d, uint count, uint bits) {
  const uint at = d * bits;
  const uint shift = at % 32;
  uint run = row[at / 32] >> shift;
  if (shift + count * bits > 32) run |= row[at / 32 + 1] << (32 - shift);
  return run;
}

inline uint code_at(uint run, uint i, uint bits) { return (run >> (i * bits)) & ((1u << bits) - 1); }

// A cache may also have exact rows of its last keys: row j % recent is that of key j if recent_keys says so
// there. The first key from which on all keys before `context` have theirs; recent <= kMaxRecent.
inline uint first_recent(device const uint* recent_keys, uint recent, uint context, uint lane) {
  const uint key = context - 1 - lane;
  const bool exists = lane < min(recent, context) && recent_keys[key % recent] == key;
  return context - simd_min(exists ? min(recent, context) : lane);
}

// Key j is in row (ring_start + j) % capacity.
inline uint ring_row(uint ring_start, uint key, uint capacity) {
  const uint row = ring_start + key % capacity;
  return row < capacity ? row : row - capacity;
}
