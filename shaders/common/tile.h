// Tiles of x times transposed quantised matrices, for every matmul kernel.
// A threadgroup computes 32 tokens x 32 outs, 32 ins at a time; each of 4 simdgroups a quarter of 16 x 16.
#pragma once

#include "units.h"

constexpr constant uint kTile = 32;               // tokens, outs and ins of a tile
constexpr constant uint kTileStride = kTile + 4;  // floats of a row of a tile: rows start in different banks
constexpr constant uint kTileFloats = kTile * kTileStride;  // floats of a tile
constexpr constant uint kTileThreads = 128;                 // threads of a threadgroup
constexpr constant uint kBlock = 8;                         // rows and columns of a simdgroup matrix
constexpr constant uint kQuarterBlocks = 2;                 // blocks of a quarter along each axis

// The accumulators of a simdgroup.
struct Quarter {
  simdgroup_float8x8 blocks[kQuarterBlocks][kQuarterBlocks];
};

// Where the quarter of a simdgroup starts in a tile.
inline uint quarter_start(uint simd) { return simd / 2 * (kTile / 2) * kTileStride + simd % 2 * (kTile / 2); }

// One unit of `rows` rows of x; the other rows of the tile are zero.
inline void load_inputs(
    device const float* x,
    uint rows,
    uint in,
    uint unit,
    uint tid,
    threadgroup float* tile) {
  for (uint i = tid; i < kTile * kTile / 4; i += kTileThreads) {
    const uint row = i / (kTile / 4);
    const uint column = i % (kTile / 4) * 4;
    float4 v = 0;
    if (row < rows) v = float4(*(device const packed_float4*)(x + ulong(row) * in + unit * kUnit + column));
    threadgroup float* target = tile + row * kTileStride + column;
    target[0] = v.x;
    target[1] = v.y;
    target[2] = v.z;
    target[3] = v.w;
  }
}

// One unit of the 32 rows of w from `first`; rows past out are zero.
template <typename W>
inline void load_weights(
    thread const W& w,
    uint first,
    uint out,
    uint unit,
    uint tid,
    threadgroup float* tile) {
  const uint row = tid / kOctets;
  const uint index = tid % kOctets;
  float values[kOctet] = {0};
  if (first + row < out) dequantize_octet(w, first + row, unit, index, values);
  for (uint i = 0; i < kOctet; ++i) tile[row * kTileStride + index * kOctet + i] = values[i];
}

// sum += inputs * weights^T, the quarter of this simdgroup.
inline void multiply_quarter(
    threadgroup const float* inputs,
    threadgroup const float* weights,
    uint simd,
    thread Quarter& sum) {
  threadgroup const float* tokens = inputs + simd / 2 * (kTile / 2) * kTileStride;
  threadgroup const float* outs = weights + simd % 2 * (kTile / 2) * kTileStride;
  for (uint k = 0; k < kTile; k += kBlock) {
    simdgroup_float8x8 a[kQuarterBlocks], b[kQuarterBlocks];
#pragma unroll
    for (uint i = 0; i < kQuarterBlocks; ++i) {
      simdgroup_load(a[i], tokens + i * kBlock * kTileStride + k, kTileStride);
      simdgroup_load(b[i], outs + i * kBlock * kTileStride + k, kTileStride, ulong2(0, 0), true);
    }
#pragma unroll
    for (uint i = 0; i < kQuarterBlocks; ++i) {
#pragma unroll
      for (uint j = 0; j < kQuarterBlocks; ++j)
        simdgroup_multiply_accumulate(sum.blocks[i][j], a[i], b[j], sum.blocks[i][j]);
    }
  }
}

// tiles[1 + m] = x * w[m]^T for `rows` rows of x and the outs from `first`, visible to all threads on return.
// tiles holds 1 + count tiles of kTileFloats; with units = 0 the result is zero and x is not read.
template <uint count, typename W>
inline void multiply_tile(
    thread const W* w,
    device const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    uint tid,
    uint simd,
    threadgroup float* tiles) {
  Quarter sums[count];
#pragma unroll
  for (uint m = 0; m < count; ++m) {
#pragma unroll
    for (uint i = 0; i < kQuarterBlocks; ++i) {
#pragma unroll
      for (uint j = 0; j < kQuarterBlocks; ++j)
        sums[m].blocks[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  for (uint unit = 0; unit < units; ++unit) {
    load_inputs(x, rows, in, unit, tid, tiles);
#pragma unroll
    for (uint m = 0; m < count; ++m) load_weights(w[m], first, out, unit, tid, tiles + (1 + m) * kTileFloats);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint m = 0; m < count; ++m) multiply_quarter(tiles, tiles + (1 + m) * kTileFloats, simd, sums[m]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
#pragma unroll
  for (uint m = 0; m < count; ++m) {
    threadgroup float* target = tiles + (1 + m) * kTileFloats + quarter_start(simd);
#pragma unroll
    for (uint i = 0; i < kQuarterBlocks; ++i) {
#pragma unroll
      for (uint j = 0; j < kQuarterBlocks; ++j)
        simdgroup_store(sums[m].blocks[i][j], target + i * kBlock * kTileStride + j * kBlock, kTileStride);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The first `rows` rows of a tile, times `factor`, to y, at the outs from `first` that exist.
inline void store_tile(
    threadgroup const float* tile,
    device float* y,
    uint rows,
    uint first,
    uint out,
    uint tid,
    float factor = 1.0f) {
  for (uint i = tid; i < rows * kTile; i += kTileThreads) {
    const uint row = i / kTile;
    const uint column = i % kTile;
    if (first + column < out)
      y[ulong(row) * out + first + column] = tile[row * kTileStride + column] * factor;
  }
}
