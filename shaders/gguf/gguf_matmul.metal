#include "../common/tile.h"
#include "gguf.h"

// y = x W^T for many tokens; W[row, i] = code * scale of its group, plus its bias in some types.
// Layout: row-major; a row of `blocks` is in / block blocks of GGML type `type`.
// Dispatch: groups (ceil_div(out, kTile), ceil_div(tokens, kTile)), threads (kTileThreads)
// Requires: in > 0; in % block == 0
// Numerics: f32; W is rounded to f32 before the product. A NaN in x stays in its token.
template <uint type, uint block, uint block_bytes>
kernel void gguf_matmul(
    device const float* x [[buffer(0)]],       // [tokens, in]
    device const uchar* blocks [[buffer(1)]],  // [out, in / block * block_bytes]
    device float* y [[buffer(2)]],             // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& in [[buffer(4)]],
    constant uint& out [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tiles[2 * kTileFloats];
  const Blocks<type, block, block_bytes> w = {blocks, in / kUnit};
  const uint token = tg.y * kTile;
  const uint rows = min(kTile, tokens - token);
  const uint first = tg.x * kTile;
  multiply_tile<1>(&w, x + ulong(token) * in, rows, in, w.units, first, out, tid, simd, tiles);
  store_tile(tiles + kTileFloats, y + ulong(token) * out, rows, first, out, tid);
}

INSTANTIATE_GGUF(gguf_matmul)
