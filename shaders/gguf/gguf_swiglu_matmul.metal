#include "../common/activations.h"
#include "../common/wide_tile.h"
#include "gguf.h"

// y = silu(x G^T) * (x U^T) for many tokens, in one pass over x; G and U have one type and shape.
// Layout: as gguf_matmul, gate and up alike.
// Dispatch: groups (ceil_div(out, kTileOuts / 2), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: in > 0; in % block == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as gguf_matmul.
template <uint type, uint block, uint block_bytes>
kernel void gguf_swiglu_matmul(
    device const float* x [[buffer(0)]],     // [tokens, in] aligned 16
    device const uchar* gate [[buffer(1)]],  // [out, in / block * block_bytes]
    device const uchar* up [[buffer(2)]],    // [out, in / block * block_bytes]
    device float* y [[buffer(3)]],           // [tokens, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Blocks<type, block, block_bytes> w[2] = {{gate, in / kUnit}, {up, in / kUnit}};
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * (kTileOuts / 2);
  multiply_wide_tile<2>(
      w, x + ulong(token) * in, rows, in, w[0].units, first, out, 1.0f, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_GGUF(gguf_swiglu_matmul)
