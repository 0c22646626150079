// Tiles of many tokens, whose threadgroups may be larger; common/cuda/wide_tile.h is the form for NVIDIA's matrix units.
#pragma once

#include "tile.h"

// As multiply_tile. All threadgroups of the grid call it, those with the same tokens for all outs.
template <uint count, typename W>
inline void multiply_wide_tile(
    thread const W* w,
    device const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float2 factors,
    device float* y,
    uint tid,
    threadgroup float* memory) {
  multiply_tile<count>(w, x, rows, in, units, first, out, factors, y, tid, memory);
}
