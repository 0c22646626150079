#include "../common/activations.h"
#include "../common/rows.h"
#include "gguf.h"

// y = silu(x G^T) * (x U^T) for few tokens, in one pass over x; G and U have one type and shape.
// Layout: as gguf_matvec, gate and up alike.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), tokens), threads (kRowThreads)
// Requires: in > 0; in % block == 0
// Numerics: f32; the products as gguf_matvec.
template <uint type, uint block, uint block_bytes>
kernel void gguf_swiglu(
    device const float* x [[buffer(0)]],     // [tokens, in]
    device const uchar* gate [[buffer(1)]],  // [out, in / block * block_bytes]
    device const uchar* up [[buffer(2)]],    // [out, in / block * block_bytes]
    device float* y [[buffer(3)]],           // [tokens, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const Blocks<type, block, block_bytes> w[2] = {{gate, in / kUnit}, {up, in / kUnit}};
  const uint first = tg.x * kRowsPerGroup + simd * kRows;
  float sums[2 * kRows];
  multiply_rows<2>(w, x + ulong(tg.y) * in, w[0].units, first, out, lane, sums);
#pragma unroll
  for (uint r = 0; r < kRows; ++r) {
    if (lane == r && first + r < out) y[ulong(tg.y) * out + first + r] = silu(sums[r]) * sums[kRows + r];
  }
}

INSTANTIATE_GGUF(gguf_swiglu)
