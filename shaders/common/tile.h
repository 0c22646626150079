// Tiles of x times transposed quantised matrices, for every matmul kernel; common/cuda/tile.h is the form for
// NVIDIA's matrix units.
#pragma once

#include "activations.h"
#include "tile_shape.h"

constexpr constant uint kDepth = 16;           // ins that are staged at a time, half a unit
constexpr constant uint kStride = kDepth + 4;  // floats of a staged row: rows start in different banks
constexpr constant uint kBlock = 8;            // rows and columns of a simdgroup matrix
constexpr constant uint kTokenBlocks = kTileTokens / kBlock;
constexpr constant uint kOutBlocks = kSimdgroupOuts / kBlock;
constexpr constant uint kResultRows = 16;  // tokens whose results are staged at a time
constexpr constant uint kResultStride = kTileOuts + 4;

static_assert((kTileTokens + kTileOuts) * kStride <= kTileFloats, "both operands are staged");
static_assert(kResultRows * kResultStride <= kTileFloats, "results are staged in the same memory");

// The accumulators of a simdgroup.
struct TileSums {
  simdgroup_float8x8 blocks[kTokenBlocks][kOutBlocks];
};

// Half `step` of the units of `rows` rows of x; the other rows of the tile are zero.
inline void load_inputs(
    device const float* x,
    uint rows,
    uint in,
    uint step,
    uint tid,
    threadgroup float* tile) {
  const uint row = tid / (kDepth / 4);
  const uint column = tid % (kDepth / 4) * 4;
  float4 v = 0;
  if (row < rows) v = *(device const float4*)(x + ulong(row) * in + step * kDepth + column);
  *(threadgroup float4*)(tile + row * kStride + column) = v;
}

// Half `step` of the units of a row of w, or zeros; the threads of a pair load eight values each.
template <typename W>
inline void load_weights(
    thread const W& w,
    uint row,
    bool exists,
    uint step,
    uint tid,
    threadgroup float* tile) {
  float values[kOctet] = {0};
  if (exists) dequantize_octet(w, row, step / 2, step % 2 * 2 + tid % 2, values);
  threadgroup float* target = tile + tid / 2 * kStride + tid % 2 * kOctet;
  *(threadgroup float4*)target = float4(values[0], values[1], values[2], values[3]);
  *(threadgroup float4*)(target + 4) = float4(values[4], values[5], values[6], values[7]);
}

// sums += inputs * weights^T for the outs of one simdgroup and the blocks of tokens that have rows.
inline void multiply_staged(
    threadgroup const float* inputs,
    threadgroup const float* weights,
    uint rows,
    thread TileSums& sums) {
#pragma unroll
  for (uint k = 0; k < kDepth; k += kBlock) {
    simdgroup_float8x8 a, b[kOutBlocks];
#pragma unroll
    for (uint j = 0; j < kOutBlocks; ++j)
      simdgroup_load(b[j], weights + j * kBlock * kStride + k, kStride, ulong2(0, 0), true);
#pragma unroll
    for (uint i = 0; i < kTokenBlocks; ++i) {
      if (i * kBlock >= rows) continue;
      simdgroup_load(a, inputs + i * kBlock * kStride + k, kStride);
#pragma unroll
      for (uint j = 0; j < kOutBlocks; ++j)
        simdgroup_multiply_accumulate(sums.blocks[i][j], a, b[j], sums.blocks[i][j]);
    }
  }
}

// Products p[m] = x * w[m]^T * factors[m]: with one matrix y = p[0], with two y = silu(p[0]) * p[1], for `rows` rows of
// x and y and the kTileOuts / count outs from `first` that exist. With units = 0 they are zero and x is not read.
template <uint count, typename W>
inline void multiply_tile(
    thread const W* w,
    device const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float2 factors,
    device float* y,
    uint tid,
    threadgroup float* memory) {
  constexpr uint kOuts = kTileOuts / count;
  const uint simd = tid / 32;
  threadgroup float* inputs = memory;
  threadgroup float* weights = memory + kTileTokens * kStride;
  const bool is_second = tid / 2 >= kOuts;
  const W own = is_second ? w[count - 1] : w[0];
  const uint row = first + tid / 2 - (is_second ? kOuts : 0);
  const bool has_outs = first + simd * kSimdgroupOuts % kOuts < out;
  TileSums sums;
#pragma unroll
  for (uint i = 0; i < kTokenBlocks; ++i) {
#pragma unroll
    for (uint j = 0; j < kOutBlocks; ++j) sums.blocks[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (uint step = 0; step < units * (kUnit / kDepth); ++step) {
    load_inputs(x, rows, in, step, tid, inputs);
    load_weights(own, row, row < out, step, tid, weights);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (has_outs) multiply_staged(inputs, weights + simd * kSimdgroupOuts * kStride, rows, sums);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
#pragma unroll
  for (uint i = 0; i < kTileTokens / kResultRows; ++i) {
    if (i * kResultRows >= rows) continue;
#pragma unroll
    for (uint half_rows = 0; half_rows < 2; ++half_rows) {
#pragma unroll
      for (uint j = 0; j < kOutBlocks; ++j) {
        threadgroup float* target =
            memory + half_rows * kBlock * kResultStride + simd * kSimdgroupOuts + j * kBlock;
        simdgroup_store(sums.blocks[i * 2 + half_rows][j], target, kResultStride);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < kResultRows * kOuts; e += kTileThreads) {
      const uint token = i * kResultRows + e / kOuts;
      const uint column = e % kOuts;
      threadgroup const float* result = memory + e / kOuts * kResultStride + column;
      if (token < rows && first + column < out)
        y[ulong(token) * out + first + column] =
            count == 2 ? silu(result[0] * factors.x) * (result[kOuts] * factors.y) : result[0] * factors.x;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
