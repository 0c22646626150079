// Tiles of x times transposed quantised matrices, for every matmul kernel; common/cuda/tile.h is the form for
// NVIDIA's matrix units.
//
// Apple's GPUs multiply matrices of f32 and of 16 bits at about the same rate, so operands are f32. With fast precision
// x and weights are one bf16 each, of which the same threadgroup memory has twice as many: it is read, and waited
// for, half as often. Sums are f32.
#pragma once

#include "activations.h"
#include "tile_shape.h"

constant bool bf16_operands [[function_constant(2)]];  // set by a Metal device with fast precision
constant bool kBf16Operands = is_function_constant_defined(bf16_operands) && bf16_operands;

constexpr constant uint kStageBytes = 64;                 // of a row of x or w that are staged at a time
constexpr constant uint kStageStride = kStageBytes + 16;  // rows start in different banks
constexpr constant uint kBlock = 8;                       // rows and columns of a simdgroup matrix
constexpr constant uint kTokenBlocks = kTileTokens / kBlock;
constexpr constant uint kOutBlocks = kSimdgroupOuts / kBlock;
constexpr constant uint kResultRows = 16;  // tokens whose results are staged at a time
constexpr constant uint kResultStride = kTileOuts + 4;

static_assert((kTileTokens + kTileOuts) * kStageStride <= kTileFloats * 4, "both operands are staged");
static_assert(kResultRows * kResultStride <= kTileFloats, "results are staged in the same memory");

// The accumulators of a simdgroup.
struct TileSums {
  simdgroup_float8x8 blocks[kTokenBlocks][kOutBlocks];
};

// Operands `column` to `column` + 3 of a row of a stage.
inline void store_operands(float4 values, uint row, uint column, threadgroup uchar* tile) {
  if (kBf16Operands)
    *(threadgroup bfloat4*)(tile + row * kStageStride + column * 2) = bfloat4(values);
  else
    *(threadgroup float4*)(tile + row * kStageStride + column * 4) = values;
}

// `depth` ins from `first` on of `rows` rows of x; the other rows of the tile are zero.
inline void load_inputs(
    device const float* x,
    uint rows,
    uint in,
    uint first,
    uint depth,
    uint tid,
    threadgroup uchar* tile) {
  const uint row = tid / 4;
  for (uint i = 0; i < depth; i += 16) {
    const uint column = i + tid % 4 * 4;
    float4 v = 0;
    if (row < rows) v = *(device const float4*)(x + ulong(row) * in + first + column);
    store_operands(v, row, column, tile);
  }
}

// The same of a row of w, or zeros; the threads of a pair load octets in turn.
template <typename W>
inline void load_weights(
    thread const W& w,
    uint row,
    bool exists,
    uint first,
    uint depth,
    uint tid,
    threadgroup uchar* tile) {
  for (uint i = 0; i < depth; i += 2 * kOctet) {
    const uint column = i + tid % 2 * kOctet;
    float values[kOctet] = {0};
    const uint octet = (first + column) / kOctet;
    if (exists) dequantize_octet(w, row, octet / kOctets, octet % kOctets, values);
    store_operands(float4(values[0], values[1], values[2], values[3]), tid / 2, column, tile);
    store_operands(float4(values[4], values[5], values[6], values[7]), tid / 2, column + 4, tile);
  }
}

// sums += inputs * weights^T for the outs of one simdgroup and the blocks of tokens that have rows.
template <typename T>
inline void multiply_staged(
    threadgroup const uchar* inputs,
    threadgroup const uchar* weights,
    uint rows,
    thread TileSums& sums) {
  constexpr uint kStride = kStageStride / sizeof(T);
#pragma unroll
  for (uint k = 0; k < kStageBytes / sizeof(T); k += kBlock) {
    simdgroup_matrix<T, 8, 8> a, b[kOutBlocks];
#pragma unroll
    for (uint j = 0; j < kOutBlocks; ++j)
      simdgroup_load(
          b[j], (threadgroup const T*)weights + j * kBlock * kStride + k, kStride, ulong2(0, 0), true);
#pragma unroll
    for (uint i = 0; i < kTokenBlocks; ++i) {
      if (i * kBlock >= rows) continue;
      simdgroup_load(a, (threadgroup const T*)inputs + i * kBlock * kStride + k, kStride);
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
  const uint depth = kStageBytes / (kBf16Operands ? 2 : 4);  // ins of a stage
  threadgroup uchar* inputs = (threadgroup uchar*)memory;
  threadgroup uchar* weights = inputs + kTileTokens * kStageStride;
  threadgroup const uchar* own_weights = weights + simd * kSimdgroupOuts * kStageStride;
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
  for (uint i = 0; i < units * kUnit; i += depth) {
    load_inputs(x, rows, in, i, depth, tid, inputs);
    load_weights(own, row, row < out, i, depth, tid, weights);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (has_outs && kBf16Operands) multiply_staged<bfloat>(inputs, own_weights, rows, sums);
    if (has_outs && !kBf16Operands) multiply_staged<float>(inputs, own_weights, rows, sums);
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
