// Tiles of keys and of values for attention over many queries. A threadgroup of four simdgroups works on a few
// rows, which are (query, head) pairs of one key head, and on 32 keys at a time. A simdgroup keeps 8 rows in
// registers: their queries, the scores and weights of a tile, and the weighted sums of values. Where a head is too
// long for that, two or four simdgroups are a team, which has the same 8 rows and divides the columns.
#pragma once

#include "attention.h"

constexpr constant uint kThreads = 128;   // of a threadgroup
constexpr constant uint kSimdgroups = 4;  // of a threadgroup
constexpr constant uint kBlock = 8;       // rows and columns of a simdgroup matrix
constexpr constant uint kKeys = 32;       // of a tile
constexpr constant uint kKeyBlocks = kKeys / kBlock;
constexpr constant uint kRowBytes = 256;  // most of a key that are staged at a time
constexpr constant uint kPadBytes = 16;   // after a staged row: rows start in different banks
constexpr constant uint kTileFloats = kKeys * (kRowBytes + kPadBytes) / 4;

static_assert(
    kSimdgroups * kBlock * kKeys <= kTileFloats,
    "a tile has room for the scores of all simdgroups");

// A chunk of the columns of heads of up to max_dim values in a tile.
template <typename T, uint max_dim>
struct TileShape {
  static constexpr constant uint kMostColumns = kRowBytes / sizeof(T);
  static constexpr constant uint kColumns = max_dim < kMostColumns ? max_dim : kMostColumns;
  static constexpr constant uint kStride = kColumns + kPadBytes / sizeof(T);
};

// Keys [first, end); a tile is the first kKeys of them.
struct KeyRange {
  uint first;
  uint end;
};

// The rows of one threadgroup: row r of a key head is head r % group of query r / group.
struct TileRows {
  uint first;
  uint count;
  uint group;  // query heads of a key head
  uint heads;
  ulong first_head;  // of the key head

  // Of row r counted from `first`, in q and y.
  ulong place(uint r) const { return ulong((first + r) / group) * heads + first_head + (first + r) % group; }
  uint query(uint r) const { return (first + r) / group; }
  uint head(uint r) const { return uint(first_head) + (first + r) % group; }
};

// The two elements of a simdgroup matrix that a lane holds: `column` and the one after it, in `row`. The lanes of a
// row differ in bits 0 and 3.
struct LanePlace {
  uint row;
  uint column;
};
inline LanePlace lane_place(uint lane) {
  return LanePlace{(lane / 4 & 4) + lane / 2 % 4, (lane / 4 & 2) * 2 + lane % 2 * 2};
}
// The lane with `column` of the row of `lane`.
inline uint lane_of_column(uint lane, uint column) {
  return (lane & ~9u) + (column & 4) * 2 + column / 2 % 2;
}

inline float max_of_row(float x) {
  x = max(x, simd_shuffle_xor(x, 1));
  return max(x, simd_shuffle_xor(x, 8));
}
inline float sum_of_row(float x) {
  x += simd_shuffle_xor(x, 1);
  return x + simd_shuffle_xor(x, 8);
}

// Eight rows and columns of a tile in f32.
template <typename T>
inline simdgroup_float8x8 load_block(threadgroup const T* tile, uint stride, bool transposed) {
  simdgroup_matrix<T, 8, 8> stored;
  simdgroup_load(stored, tile, stride, ulong2(0, 0), transposed);
  simdgroup_float8x8 block;
  block.thread_elements() = float2(stored.thread_elements());
  return block;
}
