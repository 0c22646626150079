// Gated delta rule, 32 tokens at a time; delta/cuda/chunks.h is the form for NVIDIA GPUs.
//
// With G(l, i) = g[i + 1] * ... * g[l] and G(l) = g[0] * ... * g[l] inside a chunk that starts with the state S0,
// the values d = beta (v - S k) that delta_net adds, as rows of U, solve
//     U[l] = beta[l] (v[l] - G(l) S0 k[l]) - sum_{i < l} beta[l] G(l, i) (k[l] . k[i]) U[i],
// and y[l] = G(l) S0 q[l] + sum_{i <= l} G(l, i) (q[l] . k[i]) U[i], S = G(last) S0 + sum_i G(last, i) U[i] k[i]^T.
// Decays are products of g, not exponentials of sums: g = 0 forgets exactly, and nothing overflows.
#pragma once

#include "chunk.h"

// Columns [column, column + kColumns) of `count` tokens, zero for the others: their memory may hold NaN, which
// would reach the sums.
inline void stage(
    device const float* x,
    uint stride,
    uint count,
    uint column,
    uint tid,
    threadgroup float* tile) {
  for (uint i = tid; i < kTokens * kColumns; i += kThreads) {
    const uint token = i / kColumns;
    const uint c = i % kColumns;
    tile[token * kStride + c] = token < count ? x[ulong(token) * stride + column + c] : 0.0f;
  }
}

// Products of tokens become steps and weights. Lane i of the first two simdgroups has column i of one of them.
inline void apply_decays(float g, float rate, uint lane, uint simd, ChunkMemory memory) {
  float product = 1.0f;
  for (uint l = 0; l < kTokens; ++l) {
    const float decay = simd_broadcast(g, ushort(l));
    const float own_rate = simd_broadcast(rate, ushort(l));
    if (l > lane) product *= decay;
    if (simd == 0) {
      threadgroup float& step = memory.steps[l * kStride + lane];
      step = l > lane ? -own_rate * product * step : 0.0f;
    } else {
      threadgroup float& weight = memory.weights[l * kStride + lane];
      weight = l >= lane ? product * weight : 0.0f;
    }
  }
  if (simd == 0) {
    memory.ends[lane] = product;
    memory.rates[lane] = rate;
  } else {
    float start = 1.0f;
    for (uint l = 0; l < kTokens; ++l) {
      const float decay = simd_broadcast(g, ushort(l));
      if (l <= lane) start *= decay;
    }
    for (uint i = 0; i < kBlock; ++i) memory.kept[lane * kBlock + i] = start;
  }
}

// sum += matrix[b, 0 .. b) * u[0 .. b), in blocks.
inline void add_earlier(
    threadgroup const float* matrix,
    threadgroup const float* u,
    uint b,
    thread simdgroup_float8x8& sum) {
  for (uint j = 0; j < b; ++j) {
    simdgroup_float8x8 left, right;
    simdgroup_load(left, matrix + b * kBlock * kStride + j * kBlock, kStride);
    simdgroup_load(right, u + j * kBlock * kBlock, kBlock);
    simdgroup_multiply_accumulate(sum, left, right, sum);
  }
}

// Rows [8 b, 8 b + 8) of u, which hold S0 k there: the blocks before them are solved. v has `count` tokens.
inline void solve_block(
    device const float* v,
    uint stride,
    uint count,
    uint b,
    threadgroup float* u,
    uint lane,
    ChunkMemory memory) {
  threadgroup float* own = u + b * kBlock * kBlock;
  for (uint i = lane; i < kBlock * kBlock; i += 32) {
    const uint token = b * kBlock + i / kBlock;
    const float value = token < count ? v[ulong(token) * stride + i % kBlock] : 0.0f;
    own[i] = memory.rates[token] * fma(-memory.kept[token * kBlock], own[i], value);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 sum;
  simdgroup_load(sum, own, kBlock);
  add_earlier(memory.steps, u, b, sum);
  simdgroup_store(sum, own, kBlock);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (lane < kBlock) {
    for (uint l = 1; l < kBlock; ++l) {
      threadgroup const float* steps = memory.steps + (b * kBlock + l) * kStride + b * kBlock;
      float value = own[l * kBlock + lane];
      for (uint i = 0; i < l; ++i) value = fma(steps[i], own[i * kBlock + lane], value);
      own[l * kBlock + lane] = value;
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// y of the tokens [8 b, 8 b + 8) of `count`, from S0 q and u. Inside the block a token meets only those that it
// sees: 0 times inf or NaN is not 0. sums [64] is the simdgroup's own.
inline void write_block(
    thread simdgroup_float8x8& out,
    device float* y,
    ulong stride,
    uint count,
    uint b,
    threadgroup const float* u,
    threadgroup float* sums,
    uint lane,
    ChunkMemory memory) {
  simdgroup_float8x8 factor;
  simdgroup_load(factor, memory.kept + b * kBlock * kBlock, kBlock);
  out.thread_elements() *= factor.thread_elements();
  add_earlier(memory.weights, u, b, out);
  simdgroup_store(out, sums, kBlock);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < kBlock * kBlock; i += 32) {
    const uint token = b * kBlock + i / kBlock;
    threadgroup const float* weights = memory.weights + token * kStride + b * kBlock;
    float value = sums[i];
    for (uint j = 0; j <= i / kBlock; ++j)
      value = fma(weights[j], u[(b * kBlock + j) * kBlock + i % kBlock], value);
    if (token < count) y[token * stride + i % kBlock] = value;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Rows [group * kRows, group * kRows + kRows) of a head.
template <uint tiles>
inline void delta_chunks(ChunkHead head, uint group, ChunkMemory memory, uint tid, uint lane, uint simd) {
  threadgroup float* u = memory.updates + simd * kTokens * kBlock;  // [kTokens, kBlock], of this simdgroup
  threadgroup float* sums = memory.sums + simd * kBlock * kBlock;   // [kBlock, kBlock], of this simdgroup
  constexpr uint kDim = tiles * kColumns;
  constexpr uint kTileBlocks = kColumns / kBlock;
  const uint row = group * kRows + simd * kBlock;
  const bool active = row < head.v_dim;
  const uint tokens = head.tokens, qk_stride = head.qk_stride, v_stride = head.v_stride;
  device const float* v = head.v + row;
  device float* y = head.y + row;
  device float* state = head.state + ulong(row) * kDim;
  const ulong y_stride = head.y_stride;

  simdgroup_float8x8 s[tiles * kTileBlocks];  // the rows of the state as columns
#pragma unroll
  for (uint i = 0; i < tiles * kTileBlocks; ++i) {
    s[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    if (active) simdgroup_load(s[i], state + i * kBlock, kDim, ulong2(0, 0), true);
  }

  for (uint first = 0; first < tokens; first += kTokens) {
    const uint count = min(kTokens, tokens - first);
    device const float* chunk_q = head.q + ulong(first) * qk_stride;
    device const float* chunk_k = head.k + ulong(first) * qk_stride;

    // S0 k and S0 q of the own rows; a block of rows of k k^T in each of four simdgroups, of q k^T in the others.
    simdgroup_float8x8 predicted[kBlocks], out[kBlocks], products[kBlocks];
#pragma unroll
    for (uint b = 0; b < kBlocks; ++b)
      predicted[b] = out[b] = products[b] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const uint product_row = simd % kBlocks;
    threadgroup const float* left =
        (simd < kBlocks ? memory.keys : memory.queries) + product_row * kBlock * kStride;
#pragma unroll
    for (uint t = 0; t < tiles; ++t) {
      stage(chunk_k, qk_stride, count, t * kColumns, tid, memory.keys);
      stage(chunk_q, qk_stride, count, t * kColumns, tid, memory.queries);
      threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
      for (uint c = 0; c < kTileBlocks; ++c) {
        simdgroup_float8x8 own, other;
        simdgroup_load(own, left + c * kBlock, kStride);
#pragma unroll
        for (uint b = 0; b < kBlocks; ++b) {
          simdgroup_load(other, memory.keys + b * kBlock * kStride + c * kBlock, kStride);
          simdgroup_multiply_accumulate(predicted[b], other, s[t * kTileBlocks + c], predicted[b]);
          simdgroup_load(other, memory.queries + b * kBlock * kStride + c * kBlock, kStride);
          simdgroup_multiply_accumulate(out[b], other, s[t * kTileBlocks + c], out[b]);
          if (b <= product_row) {
            simdgroup_load(
                other, memory.keys + b * kBlock * kStride + c * kBlock, kStride, ulong2(0, 0), true);
            simdgroup_multiply_accumulate(products[b], own, other, products[b]);
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
#pragma unroll
    for (uint b = 0; b < kBlocks; ++b) {
      threadgroup float* target =
          (simd < kBlocks ? memory.steps : memory.weights) + product_row * kBlock * kStride;
      simdgroup_store(products[b], target + b * kBlock, kStride);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd < 2) {
      const ulong gate = ulong(first + lane) * head.gate_stride;
      apply_decays(
          lane < count ? head.g[gate] : 1.0f, lane < count ? head.beta[gate] : 0.0f, lane, simd, memory);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // A simdgroup without rows of its own has no tokens either.
    const uint own_count = active ? count : 0;
#pragma unroll
    for (uint b = 0; b < kBlocks; ++b) {
      simdgroup_store(predicted[b], u + b * kBlock * kBlock, kBlock);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      solve_block(v + ulong(first) * v_stride, v_stride, own_count, b, u, lane, memory);
      write_block(out[b], y + first * y_stride, y_stride, own_count, b, u, sums, lane, memory);
    }

    // The state after the chunk.
    for (uint i = lane; i < kTokens * kBlock; i += 32) u[i] *= memory.ends[i / kBlock];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 added[kBlocks];
#pragma unroll
    for (uint b = 0; b < kBlocks; ++b) simdgroup_load(added[b], u + b * kBlock * kBlock, kBlock);
    const float total = memory.kept[(kTokens - 1) * kBlock];
#pragma unroll
    for (uint t = 0; t < tiles; ++t) {
      stage(chunk_k, qk_stride, count, t * kColumns, tid, memory.keys);
      threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
      for (uint c = 0; c < kTileBlocks; ++c) {
        s[t * kTileBlocks + c].thread_elements() *= total;
#pragma unroll
        for (uint b = 0; b < kBlocks; ++b) {
          simdgroup_float8x8 key;
          simdgroup_load(key, memory.keys + b * kBlock * kStride + c * kBlock, kStride, ulong2(0, 0), true);
          simdgroup_multiply_accumulate(s[t * kTileBlocks + c], key, added[b], s[t * kTileBlocks + c]);
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }

#pragma unroll
  for (uint i = 0; i < tiles * kTileBlocks; ++i) {
    if (active) simdgroup_store(s[i], state + i * kBlock, kDim, ulong2(0, 0), true);
  }
}
