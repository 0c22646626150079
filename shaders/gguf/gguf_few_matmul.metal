#include "../common/few_rows.h"
#include "gguf.h"

// y = x W^T for few tokens; W[row, i] = code * scale of its group, plus its bias in some types.
// Layout: row-major; a row of `blocks` is in / block blocks of GGML type `type`.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), ceil_div(tokens, kFewTokens)), threads (kRowThreads)
// Requires: in > 0; in % block == 0
// Work: products (tokens * in * out)
// Numerics: as gguf_matvec. On NVIDIA's matrix units x and W have 17 bits with Q2_K, Q3_K and Q6_K. A NaN in x stays in
//   its token.
template <uint type, uint block, uint block_bytes>
kernel void gguf_few_matmul(
    device const float* x [[buffer(0)]],       // [tokens, in] aligned 16
    device const uchar* blocks [[buffer(1)]],  // [out, in / block * block_bytes] aligned 16
    device float* y [[buffer(2)]],             // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& in [[buffer(4)]],
    constant uint& out [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  const Blocks<type, block, block_bytes> w = {blocks, in / kUnit};
  multiply_few<1>(&w, x, tokens, in, tg, out, 1.0f, y, tid, partial);
}

INSTANTIATE_GGUF(gguf_few_matmul)
