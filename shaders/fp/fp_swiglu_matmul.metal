#include "../common/activations.h"
#include "../common/wide_tile.h"
#include "fp.h"

// y = silu(x G^T) * (x U^T) for many tokens, in one pass over x; G and U have one format and shape.
// Layout: as fp_matmul, gate and up alike.
// Dispatch: groups (ceil_div(out, kTileOuts / 2), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: in > 0; in % 32 == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as fp_matmul.
template <uint bits, uint group>
kernel void fp_swiglu_matmul(
    device const float* x [[buffer(0)]],            // [tokens, in] aligned 16
    device const uint* gate_packed [[buffer(1)]],   // [out, in / 32 * bits]
    device const uchar* gate_scales [[buffer(2)]],  // [out, in / group]
    device const float* gate_global_scale [[buffer(3), function_constant(has_global_scale)]],  // [1]
    device const uint* up_packed [[buffer(4)]],   // [out, in / 32 * bits]
    device const uchar* up_scales [[buffer(5)]],  // [out, in / group]
    device const float* up_global_scale [[buffer(6), function_constant(has_global_scale)]],  // [1]
    device float* y [[buffer(7)]],                                                           // [tokens, out]
    constant uint& tokens [[buffer(8)]],
    constant uint& in [[buffer(9)]],
    constant uint& out [[buffer(10)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Fp<bits, group> w[2] = {{gate_packed, gate_scales, in / kUnit}, {up_packed, up_scales, in / kUnit}};
  const float2 factors = factors_at(gate_global_scale, up_global_scale, 0, 1);
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * (kTileOuts / 2);
  multiply_wide_tile<2>(
      w, x + ulong(token) * in, rows, in, w[0].units, first, out, factors, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_FP(fp_swiglu_matmul)
