// Attention of a chunk of queries in tiles of keys, whatever the keys are stored as.
//
// A Source has rows of keys or of values: four(key, column) are columns [column, column + 4) of a key.
#pragma once

#include "row_block.h"

// Threadgroup memory of attend_tiles.
struct TileMemory {
  threadgroup float4* tile;  // [kTileFloats / 4]
  threadgroup bool* finite;  // [kSimdgroups]
};

// Rows of q [tokens, heads, dim].
struct HeadQueries {
  device const float* q;
  uint dim;

  float2 two(ulong place, uint column) const {
    device const float* row = q + place * dim + column;
    return float2(row[0], row[1]);
  }
};

// tile[key, i] = column `column` + i of key keys.first + key, zero past the last of either. Returns whether all values
// that the thread loaded are finite.
template <typename Shape, typename T, typename Source>
inline bool load_tile(
    thread const Source& source,
    KeyRange keys,
    uint column,
    uint columns,
    uint tid,
    threadgroup T* tile) {
  bool finite = true;
  for (uint i = tid; i < kKeys * Shape::kColumns / 4; i += kThreads) {
    const uint key = i / (Shape::kColumns / 4);
    const uint at = i % (Shape::kColumns / 4) * 4;
    vec<T, 4> x = vec<T, 4>(T(0));
    if (keys.first + key < keys.end && column + at < columns) x = source.four(keys.first + key, column + at);
    *(threadgroup vec<T, 4>*)(tile + key * Shape::kStride + at) = x;
    finite = finite && all(isfinite(float4(x)));
  }
  return finite;
}

// y = softmax(soft_cap(scale * q k^T)) v of the rows over the keys that the mask shows; values have `dim`
// columns, keys and queries `key_dim`. Tiles are of T. sinks may be null.
template <typename T, uint max_dim, uint rows, uint max_key_dim = max_dim, typename Queries, typename Source>
inline void attend_tiles(
    thread const Queries& q,
    thread const Source& k,
    thread const Source& v,
    TileRows own,
    Mask mask,
    uint key_dim,
    uint dim,
    float scale,
    float softcap,
    device const float* sinks,
    device float* y,
    TileMemory memory,
    uint tid,
    uint lane,
    uint simd) {
  using Shape = TileShape<T, max_dim>;
  using Rows = RowBlock<T, max_dim, max_key_dim, rows>;
  constexpr uint kTeam = Rows::kTeam;
  threadgroup T* tile = (threadgroup T*)memory.tile;
  const LanePlace place = lane_place(lane);
  Rows block;
  block.own = own;
  block.mask = mask;
  block.member = simd % kTeam;
  block.lane = lane;
  block.row = simd / kTeam * kBlock + place.row;
  block.column = place.column;
  block.start(q, key_dim);

  const uint end = mask.end(own.query(own.count - 1));
  KeyRange keys = {mask.begin(own.query(0)), end};
  for (; keys.first < end; keys.first += kKeys) {
    block.clear_scores();
#pragma unroll
    for (uint c = 0; c < max_key_dim; c += Shape::kColumns) {
      if (c >= key_dim) continue;
      load_tile<Shape>(k, keys, c, key_dim, tid, tile);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      block.score(tile, c / Shape::kColumns, key_dim);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (kTeam > 1) block.join_team((threadgroup float2*)memory.tile, simd);
    block.weigh(keys, scale, softcap);
#pragma unroll
    for (uint c = 0; c < max_dim; c += Shape::kColumns) {
      if (c >= dim) continue;
      const bool all_finite = simd_all(load_tile<Shape>(v, keys, c, dim, tid, tile));
      if (lane == 0) memory.finite[simd] = all_finite;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (memory.finite[0] && memory.finite[1] && memory.finite[2] && memory.finite[3])
        block.add(tile, c / Shape::kColumns, dim);
      else
        block.add_visible(tile, c / Shape::kColumns, keys);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  block.store(sinks, y, dim);
}
