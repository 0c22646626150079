#include "../common/activations.h"
#include "../common/tile.h"
#include "gguf.h"

// y = silu(x G^T) * (x U^T) for many tokens, in one pass over x; G and U have one type and shape.
// Layout: as gguf_matmul, gate and up alike.
// Dispatch: groups (ceil_div(out, kTile), ceil_div(tokens, kTile)), threads (kTileThreads)
// Requires: in > 0; in % block == 0
// Numerics: f32; the products as gguf_matmul.
template <uint type, uint block, uint block_bytes>
kernel void gguf_swiglu_matmul(
    device const float* x [[buffer(0)]],     // [tokens, in]
    device const uchar* gate [[buffer(1)]],  // [out, in / block * block_bytes]
    device const uchar* up [[buffer(2)]],    // [out, in / block * block_bytes]
    device float* y [[buffer(3)]],           // [tokens, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tiles[3 * kTileFloats];
  const Blocks<type, block, block_bytes> w[2] = {{gate, in / kUnit}, {up, in / kUnit}};
  const uint token = tg.y * kTile;
  const uint rows = min(kTile, tokens - token);
  const uint first = tg.x * kTile;
  multiply_tile<2>(w, x + ulong(token) * in, rows, in, w[0].units, first, out, tid, simd, tiles);
  // Each thread makes the values that store_tile lets it write: no barrier in between.
  for (uint i = tid; i < kTile * kTile; i += kTileThreads) {
    threadgroup float* values = tiles + kTileFloats + i / kTile * kTileStride + i % kTile;
    values[0] = silu(values[0]) * values[kTileFloats];
  }
  store_tile(tiles + kTileFloats, y + ulong(token) * out, rows, first, out, tid);
}

INSTANTIATE_GGUF(gguf_swiglu_matmul)
