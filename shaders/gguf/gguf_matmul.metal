#include "../common/wide_tile.h"
#include "gguf.h"

// y = x W^T for many tokens; W[row, i] = code * scale of its group, plus its bias in some types.
// Layout: row-major; a row of `blocks` is in / block blocks of GGML type `type`.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: in > 0; in % block == 0
// Work: products (tokens * in * out)
// Numerics: f32; W is rounded to f32 before the product, x and W to bf16 with bf16_operands. On NVIDIA's matrix
//   units x has 17 bits, or 8 with fast precision. A NaN in x stays in its token.
template <uint type, uint block, uint block_bytes>
kernel void gguf_matmul(
    device const float* x [[buffer(0)]],       // [tokens, in] aligned 16
    device const uchar* blocks [[buffer(1)]],  // [out, in / block * block_bytes]
    device float* y [[buffer(2)]],             // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& in [[buffer(4)]],
    constant uint& out [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Blocks<type, block, block_bytes> w = {blocks, in / kUnit};
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * kTileOuts;
  multiply_wide_tile<1>(
      &w, x + ulong(token) * in, rows, in, w.units, first, out, 1.0f, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_GGUF(gguf_matmul)
