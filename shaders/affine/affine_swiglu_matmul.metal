#include "../common/activations.h"
#include "../common/wide_tile.h"
#include "affine.h"

// y = silu(x G^T) * (x U^T) for many tokens, in one pass over x; G and U have equal width, group and shape.
// Layout: as affine_matmul, gate and up alike.
// Dispatch: groups (ceil_div(out, kTileOuts / 2), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as affine_matmul.
template <uint bits, typename S>
kernel void affine_swiglu_matmul(
    device const float* x [[buffer(0)]],           // [tokens, in] aligned 16
    device const uint* gate_packed [[buffer(1)]],  // [out, in / 32 * bits] aligned 16
    device const S* gate_scales [[buffer(2)]],     // [out, in / group_size]
    device const S* gate_biases [[buffer(3)]],     // [out, in / group_size]
    device const uint* up_packed [[buffer(4)]],    // [out, in / 32 * bits] aligned 16
    device const S* up_scales [[buffer(5)]],       // [out, in / group_size]
    device const S* up_biases [[buffer(6)]],       // [out, in / group_size]
    device float* y [[buffer(7)]],                 // [tokens, out]
    constant uint& tokens [[buffer(8)]],
    constant uint& in [[buffer(9)]],
    constant uint& out [[buffer(10)]],
    constant uint& group_size [[buffer(11)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Affine<bits, S> w[2] = {
      affine_matrix<bits, S>(gate_packed, gate_scales, gate_biases, in, group_size),
      affine_matrix<bits, S>(up_packed, up_scales, up_biases, in, group_size)};
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * (kTileOuts / 2);
  multiply_wide_tile<2>(
      w, x + ulong(token) * in, rows, in, w[0].units, first, out, 1.0f, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_AFFINE(affine_swiglu_matmul)
