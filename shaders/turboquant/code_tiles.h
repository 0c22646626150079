// Attention of a chunk of queries over a compressed cache; turboquant/cuda/code_tiles.h is the form for NVIDIA's matrix
// units.
#pragma once

#include "code_source.h"

// How many rows a threadgroup has.
template <uint max_dim, uint rows>
constexpr uint coded_rows() {
  return rows;
}

// The rows of y from the same rows of q [tokens, heads, dim], as attend_tiles.
template <uint max_dim, uint rows>
inline void attend_coded(
    device const float* q,
    thread const TurboSource& k,
    thread const TurboSource& v,
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
  attend_tiles<float, max_dim, rows>(
      HeadQueries{q, k.dim}, k, v, own, mask, k.dim, k.dim, scale, softcap, sinks, y, memory, tid, lane,
      simd);
}
