// Attention over one block of keys; attention/cuda/block.h is the form for NVIDIA's matrix units.
#pragma once

#include "online_block.h"

template <uint max_dim, uint shared, typename T>
inline void attend_block(
    device const float* q,
    KeyBlock<T> keys,
    uint group,
    uint part,
    BlockSums sums,
    threadgroup float* memory,
    uint simd,
    uint lane) {
  attend_online<max_dim, shared>(q, keys, group, part, sums, memory, simd, lane);
}
