// Decode attention over one block of a compressed cache; turboquant/cuda/block.h is the form for NVIDIA's matrix units.
#pragma once

#include "online_block.h"

constexpr constant uint kFewestKeys = 64;  // of a block, except the last one that has any

// Floats of threadgroup memory that attend_codes needs.
template <uint max_dim, uint shared>
constexpr uint block_floats() {
  return online_floats<max_dim, shared>();
}

template <uint max_dim, uint shared, typename T>
inline void attend_codes(
    device const T* q,
    thread const TurboCache& cache,
    uint from,
    uint to,
    uint group,
    uint part,
    BlockSums sums,
    threadgroup float* memory,
    uint simd,
    uint lane) {
  attend_codes_online<max_dim, shared>(q, cache, from, to, group, part, sums, memory, simd, lane);
}
