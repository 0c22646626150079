// Attention for prefill: a chunk of queries over the cache, in tiles of simdgroup matrices.
#include "tile.h"

constant bool causal [[function_constant(0)]];
constant bool has_sinks [[function_constant(1)]];

// y = sum_j p_j v_j over the keys a query sees, p = softmax(soft_cap(scale * q . k)), a sink one more logit.
// Layout: key j in cache row j % capacity, the queries' own rows included; window counts the query's own key.
// Dispatch: groups (ceil_div(tokens * (heads / kv_heads), rows), kv_heads), threads (kThreads)
// Requires: tokens > 0; context > 0; kv_heads > 0; heads > 0; heads % kv_heads == 0; dim > 0; dim % 8 == 0;
//   dim <= max_dim; softcap >= 0; causal || window == 0; context + tokens + window <= 2147483647;
//   tokens * heads <= 2147483647; context <= capacity || (window > 0 && window + tokens - 1 <= capacity)
// Numerics: f32, online softmax; no visible key gives 0. NaN and inf reach only queries that see them.
template <typename T, uint max_dim, uint rows>
kernel void attention(
    device const float* q [[buffer(0)]],                                    // [tokens, heads, dim]
    device const T* k [[buffer(1)]],                                        // [capacity, kv_heads, dim]
    device const T* v [[buffer(2)]],                                        // [capacity, kv_heads, dim]
    device const float* sinks [[buffer(3), function_constant(has_sinks)]],  // [heads]
    device float* y [[buffer(4)]],                                          // [tokens, heads, dim]
    constant uint& tokens [[buffer(5)]],
    constant uint& context [[buffer(6)]],
    constant uint& capacity [[buffer(7)]],
    constant uint& heads [[buffer(8)]],
    constant uint& kv_heads [[buffer(9)]],
    constant uint& dim [[buffer(10)]],
    constant float& scale [[buffer(11)]],
    constant uint& window [[buffer(12)]],
    constant float& softcap [[buffer(13)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kRowBlocks = rows / kBlock;
  constexpr uint kOwnRows = rows / kSimdgroups;  // of a simdgroup in the softmax: simd, simd + 4, ...
  constexpr uint kStride = max_dim + kPad;
  threadgroup float queries[rows * (max_dim + kPad)];
  threadgroup float tile[kKeys * kChunkStride];
  threadgroup float weights[rows * kWeightStride];
  threadgroup float factors[rows * kBlock];
  threadgroup float scratch[kSimdgroups * kBlock * kBlock];
  threadgroup bool finite[kSimdgroups];

  const uint group = heads / kv_heads;
  const uint first_row = tg.x * rows;  // row r is head r % group of query r / group
  const uint live = min(rows, tokens * group - first_row);
  const ulong first_head = ulong(tg.y) * group;
  for (uint i = tid; i < rows * max_dim; i += kThreads) {
    const uint row = i / max_dim;
    const uint column = i % max_dim;
    const uint r = first_row + row;
    const bool exists = row < live && column < dim;
    const ulong head = ulong(r / group) * heads + first_head + r % group;
    queries[row * kStride + column] = exists ? q[head * dim + column] : 0.0f;
  }

  const Mask mask = make_mask(tokens, context, window, causal);
  const uint begin = mask.begin(first_row / group);
  const uint end = mask.end((first_row + live - 1) / group);
  KeyTile keys = {make_ring(begin, capacity), ulong(kv_heads) * dim, begin, end};
  k += ulong(tg.y) * dim;
  v += ulong(tg.y) * dim;

  Output<kRowBlocks> out[max_dim / kChunk];
  for (uint c = 0; c < max_dim / kChunk; ++c) out[c].clear();
  float top[kOwnRows], total[kOwnRows];
  for (uint i = 0; i < kOwnRows; ++i) {
    top[i] = -INFINITY;
    total[i] = 0.0f;
  }

  for (; keys.first < end; keys.first += kKeys) {
    simdgroup_float8x8 sums[kRowBlocks];
    for (uint b = 0; b < kRowBlocks; ++b) sums[b] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint column = 0; column < dim; column += kChunk) {
      load_chunk(keys, k, column, dim, tid, tile);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      multiply_keys<kRowBlocks>(queries + column, kStride, tile, min(kChunk, dim - column), simd, sums);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint b = 0; b < kRowBlocks; ++b)
      simdgroup_store(sums[b], weights + b * kBlock * kWeightStride + simd * kBlock, kWeightStride);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint i = 0; i < kOwnRows; ++i) {
      const uint row = i * kSimdgroups + simd;
      threadgroup float& weight = weights[row * kWeightStride + lane];
      const uint key = keys.first + lane;
      const bool visible = key < end && mask.visible((first_row + row) / group, key);
      const float score = soft_cap(scale * weight, softcap);
      const float higher = max(top[i], simd_max(visible ? score : -INFINITY));
      const float kept = softmax_weight(top[i], higher);
      weight = visible ? softmax_weight(score, higher) : 0.0f;
      total[i] = fma(total[i], kept, simd_sum(weight));
      top[i] = higher;
      if (lane < kBlock) factors[row * kBlock + lane] = kept;
    }

    for (uint c = 0; c < max_dim / kChunk; ++c) {
      if (c * kChunk >= dim) continue;
      const bool all_finite = simd_all(load_chunk(keys, v, c * kChunk, dim, tid, tile));
      if (lane == 0) finite[simd] = all_finite;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      out[c].scale(factors);
      if (finite[0] && finite[1] && finite[2] && finite[3])
        out[c].add(weights, tile, simd);
      else
        out[c].add_visible(
            weights, tile, mask, keys, first_row, group, lane, simd, scratch + simd * kBlock * kBlock);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }

  for (uint i = 0; i < kOwnRows; ++i) {
    const uint row = i * kSimdgroups + simd;
    const float sink = has_sinks ? sinks[first_head + (first_row + row) % group] : -INFINITY;
    if (lane < kBlock) factors[row * kBlock + lane] = normalizer(top[i], total[i], sink);
  }
  for (uint c = 0; c < max_dim / kChunk; ++c) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[c].scale(factors);
    out[c].store(tile, simd);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < live * kChunk; i += kThreads) {
      const uint r = first_row + i / kChunk;
      const uint column = c * kChunk + i % kChunk;
      const ulong head = ulong(r / group) * heads + first_head + r % group;
      if (column < dim) y[head * dim + column] = tile[i / kChunk * kChunkStride + i % kChunk];
    }
  }
}

INSTANTIATE_ATTENTION(attention, 64, 32)
INSTANTIATE_ATTENTION(attention, 128, 32)
INSTANTIATE_ATTENTION(attention, 256, 16)
INSTANTIATE_ATTENTION(attention, 512, 8)
