#include "../common/rows.h"
#include "gguf.h"

// y = x W^T for few tokens; W[row, i] = code * scale of its group, plus its bias in some types.
// Layout: row-major; a row of `blocks` is in / block blocks of GGML type `type`.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), tokens), threads (kRowThreads)
// Requires: in > 0; in % block == 0
// Numerics: f32; scale * dot(code, x) + bias * sum(x) per group of 16 or 32 values.
template <uint type, uint block, uint block_bytes>
kernel void gguf_matvec(
    device const float* x [[buffer(0)]],       // [tokens, in]
    device const uchar* blocks [[buffer(1)]],  // [out, in / block * block_bytes]
    device float* y [[buffer(2)]],             // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& in [[buffer(4)]],
    constant uint& out [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const Blocks<type, block, block_bytes> w = {blocks, in / kUnit};
  const uint first = tg.x * kRowsPerGroup + simd * kRows;
  float sums[kRows];
  multiply_rows<1>(&w, x + ulong(tg.y) * in, w.units, first, out, lane, sums);
  for (uint r = 0; r < kRows; ++r) {
    if (lane == r && first + r < out) y[ulong(tg.y) * out + first + r] = sums[r];
  }
}

INSTANTIATE_GGUF(gguf_matvec)
