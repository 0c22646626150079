#include "../common/few_rows.h"
#include "dense.h"

// y = x W^T for few tokens.
// Layout: all row-major and contiguous.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), ceil_div(tokens, kFewTokens)), threads (kRowThreads)
// Requires: in > 0; in % 32 == 0
// Work: products (tokens * in * out)
// Numerics: f32. On NVIDIA's matrix units x has 24 bits beside bf16, 17 beside f16. A NaN in x stays in its token.
template <typename T>
kernel void dense_few_matmul(
    device const float* x [[buffer(0)]],   // [tokens, in] aligned 16
    device const T* weight [[buffer(1)]],  // [out, in] aligned 16
    device float* y [[buffer(2)]],         // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& out [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  const Dense<T> w = {weight, in / kUnit};
  multiply_few<1>(&w, x, tokens, in, tg, out, 1.0f, y, tid, partial);
}

INSTANTIATE_DENSE_AS(dense_few_matmul, half, f16)
INSTANTIATE_DENSE_AS(dense_few_matmul, bfloat, bf16)
