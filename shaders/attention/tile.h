// Tiles of keys and of values for attention over many queries. A threadgroup of four simdgroups works on a
// few rows, which are (query, head) pairs of one key head, and on 32 keys at a time: each simdgroup computes
// the scores of 8 keys, then 16 of every 64 columns of the output.
#pragma once

#include "attention.h"

constexpr constant uint kThreads = 128;   // of a threadgroup
constexpr constant uint kSimdgroups = 4;  // of a threadgroup
constexpr constant uint kBlock = 8;       // rows and columns of a simdgroup matrix
constexpr constant uint kKeys = 32;       // of a tile; one per lane in the softmax
constexpr constant uint kChunk = 64;      // columns of a head that are staged at a time
constexpr constant uint kPad = 4;  // floats after a row in threadgroup memory: rows start in different banks
constexpr constant uint kChunkStride = kChunk + kPad;
constexpr constant uint kWeightStride = kKeys + kPad;
constexpr constant uint kColumns =
    2;  // simdgroup matrices beside each other that one simdgroup sums in a chunk

// Keys [first, end); a tile is the first kKeys of them.
struct KeyRange {
  uint first;
  uint end;
};

// sums[b] += rows [8 b, 8 b + 8) of a chunk of the queries times the simdgroup's 8 keys of the tile.
template <uint blocks>
inline void multiply_keys(
    threadgroup const float* queries,
    uint stride,
    threadgroup const float* tile,
    uint width,
    uint simd,
    thread simdgroup_float8x8* sums) {
  for (uint i = 0; i < width; i += kBlock) {
    simdgroup_float8x8 key, query;
    simdgroup_load(key, tile + simd * kBlock * kChunkStride + i, kChunkStride, ulong2(0, 0), true);
#pragma unroll
    for (uint b = 0; b < blocks; ++b) {
      simdgroup_load(query, queries + b * kBlock * stride + i, stride);
      simdgroup_multiply_accumulate(sums[b], query, key, sums[b]);
    }
  }
}

// The output of a simdgroup in one chunk of columns.
template <uint blocks>
struct Output {
  simdgroup_float8x8 sums[blocks][kColumns];

  void clear() {
#pragma unroll
    for (uint b = 0; b < blocks; ++b) {
#pragma unroll
      for (uint c = 0; c < kColumns; ++c) sums[b][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }

  // Multiplies each row by its factor. factors holds 8 equal values a row: a product element by element keeps
  // a NaN in its row, a product with a diagonal matrix would not.
  void scale(threadgroup const float* factors) {
#pragma unroll
    for (uint b = 0; b < blocks; ++b) {
      simdgroup_float8x8 factor;
      simdgroup_load(factor, factors + b * kBlock * kBlock, kBlock);
#pragma unroll
      for (uint c = 0; c < kColumns; ++c) sums[b][c].thread_elements() *= factor.thread_elements();
    }
  }

  // sums += weights [rows, kKeys] * tile [kKeys, kChunk].
  void add(threadgroup const float* weights, threadgroup const float* tile, uint simd) {
    for (uint key = 0; key < kKeys; key += kBlock) {
      simdgroup_float8x8 value[kColumns], weight;
#pragma unroll
      for (uint c = 0; c < kColumns; ++c)
        simdgroup_load(value[c], tile + key * kChunkStride + (simd * kColumns + c) * kBlock, kChunkStride);
#pragma unroll
      for (uint b = 0; b < blocks; ++b) {
        simdgroup_load(weight, weights + b * kBlock * kWeightStride + key, kWeightStride);
#pragma unroll
        for (uint c = 0; c < kColumns; ++c)
          simdgroup_multiply_accumulate(sums[b][c], weight, value[c], sums[b][c]);
      }
    }
  }

  // The same for a tile with values that are not finite. They must not reach rows that do not see them, and
  // 0 * inf is not 0. Row r belongs to query r / group; scratch [64] is the simdgroup's own.
  void add_visible(
      threadgroup const float* weights,
      threadgroup const float* tile,
      Mask mask,
      KeyRange keys,
      uint first_row,
      uint group,
      uint lane,
      uint simd,
      threadgroup float* scratch) {
#pragma unroll
    for (uint b = 0; b < blocks; ++b) {
#pragma unroll
      for (uint c = 0; c < kColumns; ++c) {
        simdgroup_store(sums[b][c], scratch, kBlock);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = lane; i < kBlock * kBlock; i += 32) {
          const uint row = b * kBlock + i / kBlock;
          const uint column = (simd * kColumns + c) * kBlock + i % kBlock;
          float sum = scratch[i];
          for (uint key = 0; key < kKeys && keys.first + key < keys.end; ++key) {
            if (mask.visible((first_row + row) / group, keys.first + key))
              sum = fma(weights[row * kWeightStride + key], tile[key * kChunkStride + column], sum);
          }
          scratch[i] = sum;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_load(sums[b][c], scratch, kBlock);
        simdgroup_barrier(mem_flags::mem_threadgroup);
      }
    }
  }

  // tile [8 * blocks, kChunk] = sums.
  void store(threadgroup float* tile, uint simd) const {
#pragma unroll
    for (uint b = 0; b < blocks; ++b) {
#pragma unroll
      for (uint c = 0; c < kColumns; ++c) {
        threadgroup float* target = tile + b * kBlock * kChunkStride + (simd * kColumns + c) * kBlock;
        simdgroup_store(sums[b][c], target, kChunkStride);
      }
    }
  }
};
