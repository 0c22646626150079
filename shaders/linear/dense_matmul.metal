#include "../common/wide_tile.h"
#include "dense.h"

// y = x W^T for many tokens.
// Layout: all row-major and contiguous.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: in > 0; in % 32 == 0
// Work: products (tokens * in * out)
// Numerics: f32; with bf16_operands x and W are rounded to bf16. On NVIDIA's matrix units x has 17 bits, or 8 with
//   fast precision, and so has a W of f32; with fast precision a W of f16 has 8. A NaN in x stays in its token.
template <typename T>
kernel void dense_matmul(
    device const float* x [[buffer(0)]],   // [tokens, in] aligned 16
    device const T* weight [[buffer(1)]],  // [out, in] aligned 16
    device float* y [[buffer(2)]],         // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& out [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Dense<T> w = {weight, in / kUnit};
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * kTileOuts;
  multiply_wide_tile<1>(
      &w, x + ulong(token) * in, rows, in, w.units, first, out, 1.0f, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_DENSE(dense_matmul)
