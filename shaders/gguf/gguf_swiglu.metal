#include "../common/activations.h"
#include "../common/rows.h"
#include "gguf.h"

// y = silu(x G^T) * (x U^T) for few tokens, in one pass over x; G and U have one type and shape.
// Layout: as gguf_matvec, gate and up alike.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), tokens), threads (kRowThreads)
// Requires: in > 0; in % block == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as gguf_matvec.
template <uint type, uint block, uint block_bytes>
kernel void gguf_swiglu(
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
  const uint first = tg.x * kRowsPerGroup;
  float sums[2];
  multiply_rows<2>(w, x + ulong(tg.y) * in, spans_of(w[0]), first, out, tid, kRowTeams, partial, sums);
  if (tid < kRowsPerGroup && first + tid < out) y[ulong(tg.y) * out + first + tid] = silu(sums[0]) * sums[1];
}

INSTANTIATE_GGUF(gguf_swiglu)
