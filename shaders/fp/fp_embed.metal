#include "fp.h"

constexpr constant uint kEmbedThreads = 256;

// y[t] = row ids[t] of a quantised table.
// Layout: row-major; the table as the weights of fp_matvec.
// Dispatch: groups (ceil_div(hidden, kEmbedThreads * kOctet), tokens), threads (kEmbedThreads)
// Requires: hidden % 32 == 0
// Work: bytes (tokens * hidden * 8)
// Numerics: code * scale is exact; times global_scale / 2688 in f32. An id outside [0, vocab) gives NaN.
template <uint bits, uint group>
kernel void fp_embed(
    device const int* ids [[buffer(0)]],       // [tokens]
    device const uint* packed [[buffer(1)]],   // [vocab, hidden / 32 * bits]
    device const uchar* scales [[buffer(2)]],  // [vocab, hidden / group]
    device const float* global_scale [[buffer(3), function_constant(has_global_scale)]],  // [1]
    device float* y [[buffer(4)]],                                                        // [tokens, hidden]
    constant uint& tokens [[buffer(5)]],
    constant uint& vocab [[buffer(6)]],
    constant uint& hidden [[buffer(7)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint2 tid [[thread_position_in_threadgroup]]) {
  const uint column = (tg.x * kEmbedThreads + tid.x) * kOctet;
  const uint id = uint(ids[tg.y]);  // a negative id is a large one
  const float factor = has_global_scale ? global_scale[0] / kGlobalUnit : 1.0f;
  if (column < hidden) {
    float values[kOctet];
    if (id < vocab) {
      const Fp<bits, group> table = {packed, scales, hidden / kUnit};
      dequantize_octet(table, id, column / kUnit, column % kUnit / kOctet, values);
    } else {
#pragma unroll
      for (uint i = 0; i < kOctet; ++i) values[i] = NAN;
    }
#pragma unroll
    for (uint i = 0; i < kOctet; ++i) y[ulong(tg.y) * hidden + column + i] = values[i] * factor;
  }
}

INSTANTIATE_FP(fp_embed)
