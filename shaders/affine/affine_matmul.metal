#include "../common/wide_tile.h"
#include "affine.h"

// y = x W^T for many tokens; W[row, i] = q * scale + bias of its group.
// Layout: row-major; packed holds a little-endian stream of `bits`-bit values per row.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0
// Work: products (tokens * in * out)
// Numerics: f32; W is rounded to f32 before the product, x and W to bf16 with bf16_operands. On NVIDIA's matrix
//   units x has 17 bits, or 8 with fast precision; so has W then on Hopper, if it has 4 bits and scales of bf16.
//   A NaN in x stays in its token.
template <uint bits, typename S>
kernel void affine_matmul(
    device const float* x [[buffer(0)]],      // [tokens, in] aligned 16
    device const uint* packed [[buffer(1)]],  // [out, in / 32 * bits] aligned 16
    device const S* scales [[buffer(2)]],     // [out, in / group_size]
    device const S* biases [[buffer(3)]],     // [out, in / group_size]
    device float* y [[buffer(4)]],            // [tokens, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    constant uint& group_size [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Affine<bits, S> w = affine_matrix<bits, S>(packed, scales, biases, in, group_size);
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * kTileOuts;
  multiply_wide_tile<1>(
      &w, x + ulong(token) * in, rows, in, w.units, first, out, 1.0f, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_AFFINE(affine_matmul)
