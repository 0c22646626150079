#include "../common/buckets.h"
#include "../common/slots.h"
#include "dense.h"

// y = x W[e]^T for the rows of x in bucket e: one GEMM per non-empty bucket.
// Layout: x sorted by expert, bucket e = rows offsets[e] .. offsets[e + 1]; W as dense_experts_matvec.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(rows, kTileTokens) + experts), threads (kTileThreads)
// Requires: in > 0; in % 32 == 0; weight_stride % 8 == 0; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts
// Work: products (rows * in * out),
//   bytes (rows * (in + out) * 4 + min(rows, matrices) * in * out * sizeof(T))
// Numerics: as dense_matmul. Rows in no bucket or of a negative slot are kept; an unknown slot gives NaN.
template <typename T>
kernel void dense_grouped_matmul(
    device const float* x [[buffer(0)]],      // [rows, in] aligned 16
    device const int* offsets [[buffer(1)]],  // [experts + 1]
    device const T* weight [[buffer(2)]],     // [(matrices - 1) * weight_stride + out * in] aligned 16
    device const int* slots [[buffer(3), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(4)]],                                      // [rows, out]
    constant uint& rows [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    constant uint& experts [[buffer(8)]],
    constant uint& matrices [[buffer(9)]],
    constant ulong& weight_stride [[buffer(10)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const int number = matrix_of(slots, tile.expert, experts);
  const bool known = uint(number) < matrices;
  const uint own = number < 0 ? 0 : tile.rows;
  const Dense<T> w = {weight + (known ? uint(number) : 0) * weight_stride, in / kUnit};
  const uint first = tg.x * kTileOuts;
  multiply_tile<1>(
      &w, x + ulong(tile.row) * in, own, in, known && own > 0 ? w.units : 0, first, out,
      known ? 1.0f : float(NAN), y + ulong(tile.row) * out, tid, (threadgroup float*)memory);
}

INSTANTIATE_DENSE_AS(dense_grouped_matmul, half, f16)
INSTANTIATE_DENSE_AS(dense_grouped_matmul, bfloat, bf16)
