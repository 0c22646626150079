// The codec of compressed rows: a rotated vector is a scale and, for each coordinate, the code of the nearest
// centroid. Coordinate d is centroid * scale, plus mean * ones[d] in rows with means, where ones is the rotated
// vector of ones. Centroids of up to 6 bits are those of a standard normal variable, by index. A code of 8 bits is a
// signed number of steps, which needs no table; the largest coordinate of a vector has the most steps.
#pragma once

#include <metal_stdlib>
using namespace metal;

#include "tables.h"

constexpr constant uint kMaxDim = 512;
constexpr constant uint kMaxRecent = 32;  // exact rows of a cache, at most

constexpr constant float kByteStep = 0.015625f;  // of 8-bit codes, whose multiples are halves
constexpr constant float kMostByteSteps = 127.0f;

// Of codes of up to 6 bits.
inline constant float* centroids(uint bits) {
  return bits == 2 ? kCentroids2 : bits == 3 ? kCentroids3 : bits == 4 ? kCentroids4 : kCentroids6;
}

// Of an 8-bit code in the low bits.
inline float centroid_of_byte(uint code) { return float(int(code << 24) >> 24) * kByteStep; }

inline float centroid(uint code, uint bits) {
  return bits == 8 ? centroid_of_byte(code) : centroids(bits)[code];
}

// What a vector is multiplied with before its coordinates become codes, by its norm and its largest magnitude.
inline float code_factor(float norm, float largest, uint dim, uint bits) {
  return bits == 8 ? kMostByteSteps * kByteStep / largest : sqrt(float(dim)) / norm;
}

// The code of the centroid nearest to x; 0 for NaN.
inline uint nearest(float x, uint bits) {
  if (bits == 8) {
    const float steps = rint(x / kByteStep);
    return abs(steps) <= kMostByteSteps ? uint(int(steps)) & 0xff : 0;
  }
  constant float* table = centroids(bits);
  uint index = 0;  // how many of the midpoints between centroids are below x
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
