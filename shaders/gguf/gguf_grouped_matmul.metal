#include "../common/buckets.h"
#include "../common/slots.h"
#include "gguf.h"

// y = x W[e]^T for the rows of x in bucket e: one GEMM per non-empty bucket.
// Layout: x sorted by expert, bucket e = rows offsets[e] .. offsets[e + 1]; W as gguf_experts_matvec.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(rows, kTileTokens) + experts), threads (kTileThreads)
// Requires: in > 0; in % block == 0; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts;
//   blocks_stride % (block_bytes % 4 > 0 ? 2 - block_bytes % 2 : 4) == 0
// Work: products (rows * in * out),
//   bytes (rows * (in + out) * 4 + min(rows, matrices) * in / block * out * block_bytes)
// Numerics: as gguf_matmul. Rows in no bucket or of a negative slot are kept; an unknown slot gives NaN.
template <uint type, uint block, uint block_bytes>
kernel void gguf_grouped_matmul(
    device const float* x [[buffer(0)]],      // [rows, in] aligned 16
    device const int* offsets [[buffer(1)]],  // [experts + 1]
    device const uchar* blocks
    [[buffer(2)]],  // [(matrices - 1) * blocks_stride + out * in / block * block_bytes]
    device const int* slots [[buffer(3), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(4)]],                                      // [rows, out]
    constant uint& rows [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    constant uint& experts [[buffer(8)]],
    constant uint& matrices [[buffer(9)]],
    constant ulong& blocks_stride [[buffer(10)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const int number = matrix_of(slots, tile.expert, experts);
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const uint own = number < 0 ? 0 : tile.rows;
  const Blocks<type, block, block_bytes> w = {blocks + matrix * blocks_stride, in / kUnit};
  const uint first = tg.x * kTileOuts;
  multiply_tile<1>(
      &w, x + ulong(tile.row) * in, own, in, known && own > 0 ? w.units : 0, first, out,
      known ? 1.0f : float(NAN), y + ulong(tile.row) * out, tid, (threadgroup float*)memory);
}

INSTANTIATE_GGUF(gguf_grouped_matmul)
