#include "gguf.h"

constexpr constant uint kEmbedThreads = 256;

// y[t] = row ids[t] of a quantised table.
// Layout: row-major; the table as the weights of gguf_matvec.
// Dispatch: groups (ceil_div(hidden, kEmbedThreads * kOctet), tokens), threads (kEmbedThreads)
// Requires: hidden % block == 0
// Work: bytes (tokens * hidden * 8)
// Numerics: code * scale + bias rounded once to f32. An id outside [0, vocab) gives NaN.
template <uint type, uint block, uint block_bytes>
kernel void gguf_embed(
    device const int* ids [[buffer(0)]],       // [tokens]
    device const uchar* blocks [[buffer(1)]],  // [vocab, hidden / block * block_bytes]
    device float* y [[buffer(2)]],             // [tokens, hidden]
    constant uint& tokens [[buffer(3)]],
    constant uint& vocab [[buffer(4)]],
    constant uint& hidden [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint2 tid [[thread_position_in_threadgroup]]) {
  const uint column = (tg.x * kEmbedThreads + tid.x) * kOctet;
  const uint id = uint(ids[tg.y]);  // a negative id is a large one
  if (column < hidden) {
    float values[kOctet];
    if (id < vocab) {
      const Blocks<type, block, block_bytes> table = {blocks, hidden / kUnit};
      dequantize_octet(table, id, column / kUnit, column % kUnit / kOctet, values);
    } else {
#pragma unroll
      for (uint i = 0; i < kOctet; ++i) values[i] = NAN;
    }
#pragma unroll
    for (uint i = 0; i < kOctet; ++i) y[ulong(tg.y) * hidden + column + i] = values[i];
  }
}

INSTANTIATE_GGUF(gguf_embed)
