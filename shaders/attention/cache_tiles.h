// Attention of a chunk of queries over a cache of floats; attention/cuda/cache_tiles.h is the form for NVIDIA's
// matrix units.
#pragma once

#include "cache_source.h"

// How many rows a threadgroup has.
template <typename T, uint max_dim, uint rows>
constexpr uint attended_rows() {
  return rows;
}

// The rows of y from the same rows of q [tokens, heads, dim], as attend_tiles.
template <uint max_dim, uint rows, typename T>
inline void attend_cache(
    device const float* q,
    thread const CacheSource<T>& k,
    thread const CacheSource<T>& v,
    TileRows own,
    Mask mask,
    float scale,
    float softcap,
    device const float* sinks,
    device float* y,
    TileMemory memory,
    uint tid,
    uint lane,
    uint simd) {
  attend_tiles<T, max_dim, rows>(
      HeadQueries{q, k.dim}, k, v, own, mask, k.dim, v.dim, scale, softcap, sinks, y, memory, tid, lane,
      simd);
}
