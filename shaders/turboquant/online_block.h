// Decode attention over one block of a compressed cache, with a lane's share of a row in floats.
#pragma once

#include "../attention/online_block.h"
#include "attend.h"

// Floats of threadgroup memory that attend_codes_online needs.
template <uint max_dim, uint shared>
constexpr uint online_floats() {
  return joined_floats<max_dim, shared>() + 2 * kTableFloats;
}

// The sums of query heads `part` * shared on, of the `group` heads q [group, dim] that share the keys [from, to).
template <uint max_dim, uint shared, typename T>
inline void attend_codes_online(
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
  threadgroup float* tables = memory + joined_floats<max_dim, shared>();
  const uint first = part * shared;
  const uint count = min(shared, group - first);
  load_tables(tables, simd * 32 + lane);
  Online<max_dim, shared> online =
      attend<max_dim, shared>(cache, tables, q + ulong(first) * cache.dim, count, from, to, simd, lane);
  online.publish(memory, simd, lane);
#pragma unroll
  for (uint h = 0; h < shared; ++h) {
    if (h >= count) continue;
    const float2 joined = online.join(h, memory, cache.dim, simd, lane);
    const ulong target = ulong(first + h) * sums.blocks;
    for (uint i = simd * 32 + lane; i < cache.dim; i += 32 * kOnlineSimdgroups)
      sums.o[target * cache.dim + i] = online.joined(memory, i);
    if (simd == 0 && lane == 0) {
      sums.m[target] = joined.x;
      sums.l[target] = joined.y;
    }
  }
}
