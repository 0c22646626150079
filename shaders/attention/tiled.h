// Attention of a chunk of queries in tiles of keys, whatever the keys are stored as.
//
// A Source fills tiles: load(keys, column, tid, tile) sets tile[key, i] = head[keys.first + key, column + i]
// for kKeys keys and kChunk columns, zero past the last of either, and returns whether all values that the
// thread loaded are finite.
#pragma once

#include "tile.h"

// Threadgroup memory of attend_tiles.
struct TileMemory {
  threadgroup float* queries;  // [rows, max_key_dim + kPad], loaded by the caller
  threadgroup float* tile;     // [kKeys, kChunkStride]
  threadgroup float* weights;  // [rows, kWeightStride]
  threadgroup float* factors;  // [rows, kBlock]
  threadgroup float* scratch;  // [kSimdgroups, kBlock, kBlock]
  threadgroup bool* finite;    // [kSimdgroups]
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

// The rows of q [tokens, heads, dim] into memory.queries from column `column` on, zero where there is no row.
// queries has rows of `stride` floats.
template <uint rows>
inline void load_queries(
    device const float* q,
    uint dim,
    TileRows own,
    threadgroup float* queries,
    uint stride,
    uint column,
    uint tid) {
  for (uint i = tid; i < rows * dim; i += kThreads) {
    const uint row = i / dim;
    queries[row * stride + column + i % dim] = row < own.count ? q[own.place(row) * dim + i % dim] : 0.0f;
  }
}

// y = softmax(soft_cap(scale * q k^T)) v of the rows over the keys that the mask shows; values have `dim`
// columns, keys and the loaded queries `key_dim`. sinks may be null.
template <uint max_dim, uint rows, uint max_key_dim = max_dim, typename Source>
inline void attend_tiles(
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
  constexpr uint kRowBlocks = rows / kBlock;
  constexpr uint kOwnRows = rows / kSimdgroups;  // of a simdgroup in the softmax: simd, simd + 4, ...
  constexpr uint kStride = max_key_dim + kPad;
  const uint end = mask.end(own.query(own.count - 1));
  KeyRange keys = {mask.begin(own.query(0)), end};
  Output<kRowBlocks> out[max_dim / kChunk];
#pragma unroll
  for (uint c = 0; c < max_dim / kChunk; ++c) out[c].clear();
  float top[kOwnRows], total[kOwnRows];
#pragma unroll
  for (uint i = 0; i < kOwnRows; ++i) {
    top[i] = -INFINITY;
    total[i] = 0.0f;
  }

  for (; keys.first < end; keys.first += kKeys) {
    simdgroup_float8x8 sums[kRowBlocks];
#pragma unroll
    for (uint b = 0; b < kRowBlocks; ++b) sums[b] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint column = 0; column < key_dim; column += kChunk) {
      k.load(keys, column, tid, memory.tile);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const uint width = min(kChunk, key_dim - column);
      multiply_keys<kRowBlocks>(memory.queries + column, kStride, memory.tile, width, simd, sums);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
#pragma unroll
    for (uint b = 0; b < kRowBlocks; ++b)
      simdgroup_store(sums[b], memory.weights + b * kBlock * kWeightStride + simd * kBlock, kWeightStride);
    threadgroup_barrier(mem_flags::mem_threadgroup);

#pragma unroll
    for (uint i = 0; i < kOwnRows; ++i) {
      const uint row = i * kSimdgroups + simd;
      threadgroup float& weight = memory.weights[row * kWeightStride + lane];
      const uint key = keys.first + lane;
      const bool visible = key < end && mask.visible(own.query(row), key);
      const float score = soft_cap(scale * weight, softcap);
      const float higher = max(top[i], simd_max(visible ? score : -INFINITY));
      const float kept = softmax_weight(top[i], higher);
      weight = visible ? softmax_weight(score, higher) : 0.0f;
      total[i] = fma(total[i], kept, simd_sum(weight));
      top[i] = higher;
      if (lane < kBlock) memory.factors[row * kBlock + lane] = kept;
    }

#pragma unroll
    for (uint c = 0; c < max_dim / kChunk; ++c) {
      if (c * kChunk >= dim) continue;
      const bool all_finite = simd_all(v.load(keys, c * kChunk, tid, memory.tile));
      if (lane == 0) memory.finite[simd] = all_finite;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      out[c].scale(memory.factors);
      if (memory.finite[0] && memory.finite[1] && memory.finite[2] && memory.finite[3])
        out[c].add(memory.weights, memory.tile, simd);
      else
        out[c].add_visible(
            memory.weights, memory.tile, mask, keys, own.first, own.group, lane, simd,
            memory.scratch + simd * kBlock * kBlock);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }

#pragma unroll
  for (uint i = 0; i < kOwnRows; ++i) {
    const uint row = i * kSimdgroups + simd;
    const float sink = sinks != nullptr ? sinks[own.head(row)] : -INFINITY;
    if (lane < kBlock) memory.factors[row * kBlock + lane] = normalizer(top[i], total[i], sink);
  }
#pragma unroll
  for (uint c = 0; c < max_dim / kChunk; ++c) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[c].scale(memory.factors);
    out[c].store(memory.tile, simd);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < own.count * kChunk; i += kThreads) {
      const uint column = c * kChunk + i % kChunk;
      if (column < dim)
        y[own.place(i / kChunk) * dim + column] = memory.tile[i / kChunk * kChunkStride + i % kChunk];
    }
  }
}
