// Eight rows of queries, as the registers of a simdgroup.
#pragma once

#include "tile.h"

// Eight of the rows of a threadgroup. Member m of a team of n simdgroups has eight columns of every 8 n: block i of them
// begins at column 8 (i n + m).
template <typename T, uint max_dim, uint max_key_dim, uint rows>
struct RowBlock {
  using Shape = TileShape<T, max_dim>;
  static constexpr constant uint kTeam = kSimdgroups * kBlock / rows;
  static constexpr constant uint kChunkBlocks = Shape::kColumns / kBlock / kTeam;
  // Blocks that are added or left out together.
  static constexpr constant uint kStep = kChunkBlocks < 4 ? kChunkBlocks : 4;
  static constexpr constant uint kQueries = max_key_dim / kBlock / kTeam;
  static constexpr constant uint kSums = max_dim / kBlock / kTeam;

  TileRows own;
  Mask mask;
  uint member;
  uint lane;
  uint row;     // of the lane
  uint column;  // of the lane, in a matrix
  simdgroup_float8x8 queries[kQueries];
  simdgroup_float8x8 weights[kKeyBlocks];  // of a tile; scores before weigh
  simdgroup_float8x8 sums[kSums];
  float top;    // the largest score of the row
  float total;  // the sum of weights of the lane's keys

  // Queries: two(place, column) are columns `column` and the next of the row at `place`.
  template <typename Queries>
  void start(thread const Queries& from, uint key_dim) {
    top = -INFINITY;
    total = 0.0f;
#pragma unroll
    for (uint i = 0; i < kSums; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma unroll
    for (uint i = 0; i < kQueries; ++i) {
      const uint first = block_column(i);
      const bool exists = row < own.count && first < key_dim;
      queries[i].thread_elements() = exists ? from.two(own.place(row), first + column) : float2(0.0f);
    }
  }

  void clear_scores() {
#pragma unroll
    for (uint n = 0; n < kKeyBlocks; ++n) weights[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }

  // Adds a chunk of the columns of a tile of keys to the scores.
  void score(threadgroup const T* tile, uint chunk, uint key_dim) {
#pragma unroll
    for (uint step = 0; step < kChunkBlocks; step += kStep) {
      if (first_column(chunk, step) >= key_dim) continue;
#pragma unroll
      for (uint b = step; b < step + kStep; ++b) {
        const uint i = chunk * kChunkBlocks + b;
        if (i >= kQueries) continue;
#pragma unroll
        for (uint n = 0; n < kKeyBlocks; ++n) {
          const simdgroup_float8x8 keys =
              load_block(tile + n * kBlock * Shape::kStride + block_column(b), Shape::kStride, true);
          simdgroup_multiply_accumulate(weights[n], queries[i], keys, weights[n]);
        }
      }
    }
  }

  // Adds the scores of the other members of the team, which have other columns.
  void join_team(threadgroup float2* scores, uint simd) {
#pragma unroll
    for (uint n = 0; n < kKeyBlocks; ++n)
      scores[(simd * kKeyBlocks + n) * 32 + lane] = weights[n].thread_elements();
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint n = 0; n < kKeyBlocks; ++n) {
      float2 sum = 0.0f;
#pragma unroll
      for (uint m = 0; m < kTeam; ++m) sum += scores[((simd - member + m) * kKeyBlocks + n) * 32 + lane];
      weights[n].thread_elements() = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // Makes weights of the scores of a tile. Sums of earlier keys become relative to the new top.
  void weigh(KeyRange keys, float scale, float softcap) {
    const uint query = own.query(row);
    const uint begin = mask.begin(query);
    const uint end = min(mask.end(query), keys.end);
    float higher = top;
#pragma unroll
    for (uint i = 0; i < 2 * kKeyBlocks; ++i) {
      const uint key = keys.first + i / 2 * kBlock + column + i % 2;
      const float score = soft_cap(scale * weights[i / 2].thread_elements()[i % 2], softcap);
      if (begin <= key && key < end) higher = max(higher, score);
      weights[i / 2].thread_elements()[i % 2] = score;
    }
    higher = max_of_row(higher);
    const float kept = softmax_weight(top, higher);
    top = higher;
    total *= kept;
#pragma unroll
    for (uint i = 0; i < 2 * kKeyBlocks; ++i) {
      const uint key = keys.first + i / 2 * kBlock + column + i % 2;
      const float score = weights[i / 2].thread_elements()[i % 2];
      const float weight = begin <= key && key < end ? softmax_weight(score, higher) : 0.0f;
      total += weight;
      weights[i / 2].thread_elements()[i % 2] = weight;
    }
#pragma unroll
    for (uint i = 0; i < kSums; ++i) sums[i].thread_elements() *= kept;
  }

  // Adds a chunk of the columns of a tile of values.
  void add(threadgroup const T* tile, uint chunk, uint dim) {
#pragma unroll
    for (uint step = 0; step < kChunkBlocks; step += kStep) {
      if (first_column(chunk, step) >= dim) continue;
#pragma unroll
      for (uint n = 0; n < kKeyBlocks; ++n) {
#pragma unroll
        for (uint b = step; b < step + kStep; ++b) {
          const uint i = chunk * kChunkBlocks + b;
          const simdgroup_float8x8 values =
              load_block(tile + n * kBlock * Shape::kStride + block_column(b), Shape::kStride, false);
          simdgroup_multiply_accumulate(sums[i], weights[n], values, sums[i]);
        }
      }
    }
  }

  // The same for a tile with values that are not finite. They must not reach rows that do not see them, and
  // 0 * inf is not 0.
  void add_visible(threadgroup const T* tile, uint chunk, KeyRange keys) {
    const uint query = own.query(row);
#pragma unroll
    for (uint n = 0; n < kKeyBlocks; ++n) {
      const float2 two = weights[n].thread_elements();
      for (uint k = 0; k < kBlock; ++k) {
        const float weight = simd_shuffle(k % 2 == 0 ? two.x : two.y, ushort(lane_of_column(lane, k)));
        const uint key = n * kBlock + k;
        if (keys.first + key >= keys.end || !mask.visible(query, keys.first + key)) continue;
        threadgroup const T* values = tile + key * Shape::kStride + column;
#pragma unroll
        for (uint b = 0; b < kChunkBlocks; ++b) {
          const uint i = chunk * kChunkBlocks + b;
          const float2 value = float2(values[block_column(b)], values[block_column(b) + 1]);
          sums[i].thread_elements() = fma(float2(weight), value, sums[i].thread_elements());
        }
      }
    }
  }

  // y = results. sinks may be null.
  void store(device const float* sinks, device float* y, uint dim) {
    const float sink = sinks != nullptr ? sinks[own.head(row)] : -INFINITY;
    const float factor = normalizer(top, sum_of_row(total), sink);
    if (row >= own.count) return;
    device float* results = y + own.place(row) * dim + column;
#pragma unroll
    for (uint i = 0; i < kSums; ++i) {
      if (block_column(i) >= dim) continue;
      const float2 two = sums[i].thread_elements() * factor;
      results[block_column(i)] = two.x;
      results[block_column(i) + 1] = two.y;
    }
  }

  // Of the team, in the blocks from `step` on of a chunk.
  uint first_column(uint chunk, uint step) const { return (chunk * kChunkBlocks + step) * kTeam * kBlock; }
  // Where block i of the member begins; of the blocks of a chunk, in the chunk.
  uint block_column(uint i) const { return (i * kTeam + member) * kBlock; }
};
