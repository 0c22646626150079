#include "../common/wide_tile.h"
#include "fp.h"

// y = x W^T for many tokens; W[row, i] = code * scale of its group.
// Layout: row-major; packed holds the codes of a row one after another, the first in the lowest bits.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(tokens, kTileTokens)), threads (kTileThreads)
// Requires: in > 0; in % 32 == 0
// Work: products (tokens * in * out)
// Numerics: f32; W is exact in the product, the sum times global_scale / 2688. With bf16_operands x is rounded to
//   bf16. On NVIDIA's matrix units it has 17 bits. A NaN in x stays in its token.
template <uint bits, uint group>
kernel void fp_matmul(
    device const float* x [[buffer(0)]],       // [tokens, in] aligned 16
    device const uint* packed [[buffer(1)]],   // [out, in / 32 * bits]
    device const uchar* scales [[buffer(2)]],  // [out, in / group]
    device const float* global_scale [[buffer(3), function_constant(has_global_scale)]],  // [1]
    device float* y [[buffer(4)]],                                                        // [tokens, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const Fp<bits, group> w = {packed, scales, in / kUnit};
  const float factor = has_global_scale ? global_scale[0] / kGlobalUnit : 1.0f;
  const uint token = tg.y * kTileTokens;
  const uint rows = min(kTileTokens, tokens - token);
  const uint first = tg.x * kTileOuts;
  multiply_wide_tile<1>(
      &w, x + ulong(token) * in, rows, in, w.units, first, out, factor, y + ulong(token) * out, tid,
      (threadgroup float*)memory);
}

INSTANTIATE_FP(fp_matmul)
