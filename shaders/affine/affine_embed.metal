#include "affine.h"

constexpr constant uint kEmbedThreads = 256;

// y[t] = row ids[t] of a quantised table.
// Layout: row-major; the table as the weights of affine_matvec.
// Dispatch: groups (ceil_div(hidden, kEmbedThreads * kOctet), tokens), threads (kEmbedThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; hidden % group_size == 0
// Work: bytes (tokens * hidden * 8)
// Numerics: q * scale + bias rounded once to f32. An id outside [0, vocab) gives NaN.
template <uint bits, typename S>
kernel void affine_embed(
    device const int* ids [[buffer(0)]],      // [tokens]
    device const uint* packed [[buffer(1)]],  // [vocab, hidden / 32 * bits]
    device const S* scales [[buffer(2)]],     // [vocab, hidden / group_size]
    device const S* biases [[buffer(3)]],     // [vocab, hidden / group_size]
    device float* y [[buffer(4)]],            // [tokens, hidden]
    constant uint& tokens [[buffer(5)]],
    constant uint& vocab [[buffer(6)]],
    constant uint& hidden [[buffer(7)]],
    constant uint& group_size [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint2 tid [[thread_position_in_threadgroup]]) {
  const uint column = (tg.x * kEmbedThreads + tid.x) * kOctet;
  const uint id = uint(ids[tg.y]);  // a negative id is a large one
  if (column < hidden) {
    float values[kOctet];
    if (id < vocab) {
      const Affine<bits, S> table = affine_matrix<bits, S>(packed, scales, biases, hidden, group_size);
      dequantize_octet(table, id, column / kUnit, column % kUnit / kOctet, values);
    } else {
#pragma unroll
      for (uint i = 0; i < kOctet; ++i) values[i] = NAN;
    }
#pragma unroll
    for (uint i = 0; i < kOctet; ++i) y[ulong(tg.y) * hidden + column + i] = values[i];
  }
}

INSTANTIATE_AFFINE(affine_embed)
