// One block of the keys that a query sees, for decode: the simdgroups of a threadgroup share its keys.
#pragma once

#include "online.h"

// A key head of a cache, and the keys of a block in it.
template <typename T>
struct KeyBlock {
  device const T* k;
  device const T* v;
  ulong stride;  // elements from one row of the cache to the next
  Ring ring;
  uint from;
  uint to;
  uint dim;
  float scale;
  float softcap;
};

// What is known of a block, by the query heads of its key head, which are `blocks` blocks apart.
struct BlockSums {
  device float* o;  // [dim]
  device float* m;
  device float* l;
  uint blocks;
};

// The sums of query heads `part` * shared on, of the `group` heads q [group, dim] that share the keys.
template <uint max_dim, uint shared, typename T>
inline void attend_online(
    device const float* q,
    KeyBlock<T> keys,
    uint group,
    uint part,
    BlockSums sums,
    threadgroup float* memory,
    uint simd,
    uint lane) {
  constexpr uint kBatch = Online<max_dim, shared>::kBatch;
  const uint dim = keys.dim;
  const uint first = part * shared;
  const uint count = min(shared, group - first);
  Share<max_dim> query[shared];
#pragma unroll
  for (uint h = 0; h < shared; ++h) query[h].load(q + (first + min(h, count - 1)) * dim, dim, lane);

  Online<max_dim, shared> online;
  online.start();
  for (uint at = keys.from + simd * kBatch; at < keys.to; at += kOnlineSimdgroups * kBatch) {
    Raw<T, max_dim> key_rows[kBatch], value_rows[kBatch];
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      const ulong place = keys.ring.row(min(at + b, keys.to - 1)) * keys.stride;
      key_rows[b].load(keys.k + place, dim, lane);
      value_rows[b].load(keys.v + place, dim, lane);
    }
    float dots[shared * kBatch];
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      const Share<max_dim> key = key_rows[b].share();
#pragma unroll
      for (uint h = 0; h < shared; ++h) dots[h * kBatch + b] = h < count ? query[h].dot(key) : 0.0f;
    }
    const float score = soft_cap(keys.scale * sums_by_lane<shared * kBatch>(dots, lane), keys.softcap);
    const float weight = online.weigh(score, at + online.key_of(lane) < keys.to);
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      if (at + b < keys.to) online.add(b, value_rows[b].share(), weight, count);
    }
  }

  online.publish(memory, simd, lane);
#pragma unroll
  for (uint h = 0; h < shared; ++h) {
    if (h >= count) continue;
    const float2 joined = online.join(h, memory, dim, simd, lane);
    const ulong target = ulong(first + h) * sums.blocks;
    for (uint i = simd * 32 + lane; i < dim; i += 32 * kOnlineSimdgroups)
      sums.o[target * dim + i] = online.joined(memory, i);
    if (simd == 0 && lane == 0) {
      sums.m[target] = joined.x;
      sums.l[target] = joined.y;
    }
  }
}
