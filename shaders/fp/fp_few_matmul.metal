#include "../common/few_rows.h"
#include "fp.h"

// y = x W^T for few tokens; W[row, i] = code * scale of its group.
// Layout: row-major; packed holds the codes of a row one after another, the first in the lowest bits.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), ceil_div(tokens, kFewTokens)), threads (kRowThreads)
// Requires: in > 0; in % 32 == 0
// Work: products (tokens * in * out)
// Numerics: as fp_matvec. On NVIDIA's matrix units x and W have 17 bits with nvfp4. A NaN in x stays in its token.
template <uint bits, uint group>
kernel void fp_few_matmul(
    device const float* x [[buffer(0)]],       // [tokens, in] aligned 16
    device const uint* packed [[buffer(1)]],   // [out, in / 32 * bits] aligned 16
    device const uchar* scales [[buffer(2)]],  // [out, in / group]
    device const float* global_scale [[buffer(3), function_constant(has_global_scale)]],  // [1]
    device float* y [[buffer(4)]],                                                        // [tokens, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  const Fp<bits, group> w = {packed, scales, in / kUnit};
  const float factor = has_global_scale ? global_scale[0] / kGlobalUnit : 1.0f;
  multiply_few<1>(&w, x, tokens, in, tg, out, factor, y, tid, partial);
}

INSTANTIATE_FP(fp_few_matmul)
