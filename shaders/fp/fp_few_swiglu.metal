#include "../common/few_rows.h"
#include "fp.h"

// y = silu(x G^T) * (x U^T) for few tokens, in one pass over x; G and U have one format and shape.
// Layout: as fp_few_matmul, gate and up alike.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), ceil_div(tokens, kFewTokens)), threads (kRowThreads)
// Requires: in > 0; in % 32 == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as fp_few_matmul.
template <uint bits, uint group>
kernel void fp_few_swiglu(
    device const float* x [[buffer(0)]],            // [tokens, in] aligned 16
    device const uint* gate_packed [[buffer(1)]],   // [out, in / 32 * bits] aligned 16
    device const uchar* gate_scales [[buffer(2)]],  // [out, in / group]
    device const float* gate_global_scale [[buffer(3), function_constant(has_global_scale)]],  // [1]
    device const uint* up_packed [[buffer(4)]],   // [out, in / 32 * bits] aligned 16
    device const uchar* up_scales [[buffer(5)]],  // [out, in / group]
    device const float* up_global_scale [[buffer(6), function_constant(has_global_scale)]],  // [1]
    device float* y [[buffer(7)]],                                                           // [tokens, out]
    constant uint& tokens [[buffer(8)]],
    constant uint& in [[buffer(9)]],
    constant uint& out [[buffer(10)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[2 * kRowPartials];
  const Fp<bits, group> w[2] = {{gate_packed, gate_scales, in / kUnit}, {up_packed, up_scales, in / kUnit}};
  const float2 factors = factors_at(gate_global_scale, up_global_scale, 0, 1);
  multiply_few<2>(w, x, tokens, in, tg, out, factors, y, tid, partial);
}

INSTANTIATE_FP(fp_few_swiglu)
