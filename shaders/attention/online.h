// The online softmax of decode attention. A simdgroup takes a batch of keys at once: each lane has the score of one key
// of the batch for one of the query heads that share the rows. The simdgroups of a threadgroup have keys of their own,
// and join their sums in the end.
#pragma once

#include "../common/lane_sums.h"
#include "attention.h"
#include "share.h"

constexpr constant uint kOnlineSimdgroups = 8;  // of a threadgroup

// Floats of threadgroup memory that join needs.
template <uint max_dim, uint shared>
constexpr uint joined_floats() {
  return kOnlineSimdgroups * (max_dim + 2 * shared);
}

template <uint max_dim, uint shared>
struct Online {
  enum : uint { kBatch = max_dim == 512 ? 4 : 32 / shared, kScores = shared * kBatch };

  Share<max_dim> sum[shared];  // of weighted values
  float top;                   // the largest score of the lane's head
  float total;                 // the sum of weights of the lane's keys
  float kept;                  // what the last batch has left of earlier sums

  void start() {
    top = -INFINITY;
    total = 0.0f;
    kept = 1.0f;
#pragma unroll
    for (uint h = 0; h < shared; ++h) {
#pragma unroll
      for (uint i = 0; i < Share<max_dim>::kValues; ++i) sum[h].values[i] = 0.0f;
    }
  }

  // The key of the batch and the head of a lane.
  static uint key_of(uint lane) { return lane % kBatch; }
  static uint head_of(uint lane) { return lane % kScores / kBatch; }

  // Takes the scores of a batch, of which only some keys may be seen; returns the weight of the lane's key.
  float weigh(float score, bool seen) {
    float higher = seen ? score : -INFINITY;
#pragma unroll
    for (uint stride = 1; stride < kBatch; stride *= 2)
      higher = max(higher, simd_shuffle_xor(higher, ushort(stride)));
    higher = max(top, higher);
    kept = softmax_weight(top, higher);
    const float weight = seen ? softmax_weight(score, higher) : 0.0f;
    total = fma(total, kept, weight);
    top = higher;
#pragma unroll
    for (uint h = 0; h < shared; ++h) {
      const float factor = simd_shuffle(kept, ushort(h * kBatch));
#pragma unroll
      for (uint i = 0; i < Share<max_dim>::kValues; ++i) sum[h].values[i] *= factor;
    }
    return weight;
  }

  // Adds the values of key b of the batch to the sums of the first `count` heads, times the lanes' factors.
  void add(uint b, thread const Share<max_dim>& values, float factor, uint count) {
#pragma unroll
    for (uint h = 0; h < shared; ++h) {
      if (h >= count) continue;
      const float weight = simd_shuffle(factor, ushort(h * kBatch + b));
#pragma unroll
      for (uint i = 0; i < Share<max_dim>::kValues; ++i)
        sum[h].values[i] = fma(weight, values.values[i], sum[h].values[i]);
    }
  }

  // The sum over the keys of the lane's head of a number that each lane has for its own.
  static float over_keys(float own) {
#pragma unroll
    for (uint stride = 1; stride < kBatch; stride *= 2) own += simd_shuffle_xor(own, ushort(stride));
    return own;
  }

  // Tells the other simdgroups of the threadgroup the largest score and the sum of weights of each head.
  void publish(threadgroup float* memory, uint simd, uint lane) {
    threadgroup float* tops = memory + kOnlineSimdgroups * max_dim;
    threadgroup float* totals = tops + kOnlineSimdgroups * shared;
    const float all = over_keys(total);
    if (key_of(lane) == 0 && lane < kScores) {
      tops[simd * shared + head_of(lane)] = top;
      totals[simd * shared + head_of(lane)] = all;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // After publish: the largest score and the sum of weights of head h. Leaves the sums of every simdgroup in
  // memory, relative to that score; joined adds them.
  float2 join(uint h, threadgroup float* memory, uint dim, uint simd, uint lane) {
    threadgroup const float* tops = memory + kOnlineSimdgroups * max_dim;
    threadgroup const float* totals = tops + kOnlineSimdgroups * shared;
    const uint other = lane % kOnlineSimdgroups * shared + h;
    const bool used = totals[other] != 0.0f;
    const float highest = simd_max(used ? tops[other] : -INFINITY);
    const float factor = used ? softmax_weight(tops[other], highest) : 0.0f;
    const float all = simd_sum(lane < kOnlineSimdgroups && used ? factor * totals[other] : 0.0f);
    const float own = simd_shuffle(factor, ushort(simd));
#pragma unroll
    for (uint i = 0; i < Share<max_dim>::kValues; ++i) sum[h].values[i] *= own;
    if (h > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    sum[h].store(memory + simd * max_dim, dim, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return float2(highest, all);
  }

  static float joined(threadgroup const float* memory, uint i) {
    float value = 0.0f;
#pragma unroll
    for (uint s = 0; s < kOnlineSimdgroups; ++s) value += memory[s * max_dim + i];
    return value;
  }
};

// Writes what a block without keys has for `count` heads; target is that of the first head.
inline void write_no_keys(
    device float* o,
    device float* m,
    device float* l,
    ulong target,
    uint count,
    uint blocks,
    uint dim,
    uint tid) {
  for (uint h = 0; h < count; ++h, target += blocks) {
    for (uint i = tid; i < dim; i += 32 * kOnlineSimdgroups) o[target * dim + i] = 0.0f;
    if (tid == 0) {
      m[target] = -INFINITY;
      l[target] = 0.0f;
    }
  }
}
