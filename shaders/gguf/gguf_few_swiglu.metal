#include "../common/few_rows.h"
#include "gguf.h"

// y = silu(x G^T) * (x U^T) for few tokens, in one pass over x; G and U have one type and shape.
// Layout: as gguf_few_matmul, gate and up alike.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), ceil_div(tokens, kFewTokens)), threads (kRowThreads)
// Requires: in > 0; in % block == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as gguf_few_matmul.
template <uint type, uint block, uint block_bytes>
kernel void gguf_few_swiglu(
    device const float* x [[buffer(0)]],     // [tokens, in] aligned 16
    device const uchar* gate [[buffer(1)]],  // [out, in / block * block_bytes] aligned 16
    device const uchar* up [[buffer(2)]],    // [out, in / block * block_bytes] aligned 16
    device float* y [[buffer(3)]],           // [tokens, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[2 * kRowPartials];
  const Blocks<type, block, block_bytes> w[2] = {{gate, in / kUnit}, {up, in / kUnit}};
  multiply_few<2>(w, x, tokens, in, tg, out, 1.0f, y, tid, partial);
}

INSTANTIATE_GGUF(gguf_few_swiglu)
