#include "../common/buckets.h"
#include "../common/slots.h"
#include "gguf.h"

// y = silu(x G[e]^T) * (x U[e]^T) for the rows of x in bucket e, in one pass over x.
// Layout: as gguf_grouped_matmul; gate and up have equal stride and slots.
// Dispatch: groups (ceil_div(out, kTileOuts / 2), ceil_div(rows, kTileTokens) + experts), threads (kTileThreads)
// Requires: in > 0; in % block == 0; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts;
//   blocks_stride % (block_bytes % 4 > 0 ? 2 - block_bytes % 2 : 4) == 0
// Work: products (2 * rows * in * out),
//   bytes (rows * (in + out) * 4 + 2 * min(rows, matrices) * in / block * out * block_bytes)
// Numerics: as gguf_swiglu_matmul. Rows in no bucket or of a negative slot are kept; an unknown slot gives NaN.
template <uint type, uint block, uint block_bytes>
kernel void gguf_grouped_swiglu(
    device const float* x [[buffer(0)]],      // [rows, in] aligned 16
    device const int* offsets [[buffer(1)]],  // [experts + 1]
    device const uchar* gate
    [[buffer(2)]],  // [(matrices - 1) * blocks_stride + out * in / block * block_bytes]
    device const uchar* up
    [[buffer(3)]],  // [(matrices - 1) * blocks_stride + out * in / block * block_bytes]
    device const int* slots [[buffer(4), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(5)]],                                      // [rows, out]
    constant uint& rows [[buffer(6)]],
    constant uint& in [[buffer(7)]],
    constant uint& out [[buffer(8)]],
    constant uint& experts [[buffer(9)]],
    constant uint& matrices [[buffer(10)]],
    constant ulong& blocks_stride [[buffer(11)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const int number = matrix_of(slots, tile.expert, experts);
  const bool known = uint(number) < matrices;
  const ulong start = (known ? uint(number) : 0) * blocks_stride;
  const uint own = number < 0 ? 0 : tile.rows;
  const Blocks<type, block, block_bytes> w[2] = {{gate + start, in / kUnit}, {up + start, in / kUnit}};
  const uint first = tg.x * (kTileOuts / 2);
  multiply_tile<2>(
      w, x + ulong(tile.row) * in, own, in, known && own > 0 ? w[0].units : 0, first, out,
      known ? 1.0f : float(NAN), y + ulong(tile.row) * out, tid, (threadgroup float*)memory);
}

INSTANTIATE_GGUF(gguf_grouped_swiglu)
