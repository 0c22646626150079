#include "../common/buckets.h"
#include "experts.h"

// y = x W[e]^T for the rows of x in bucket e: one GEMM per non-empty bucket.
// Layout: x sorted by expert, bucket e = rows offsets[e] .. offsets[e + 1]; W as affine_experts_matvec.
// Dispatch: groups (ceil_div(out, kTileOuts), ceil_div(rows, kTileTokens) + experts), threads (kTileThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0;
//   experts > 0; matrices > 0; matrices <= kNoMatrix; by_slot || matrices == experts;
//   bits % 4 > 0 || packed_stride % 4 == 0
// Work: products (rows * in * out),
//   bytes (rows * (in + out) * 4 + min(rows, matrices) * in * out * (bits + 1) / 8)
// Numerics: as affine_matmul. Rows in no bucket or of a negative slot are kept; an unknown slot gives NaN.
template <uint bits, typename S>
kernel void affine_grouped_matmul(
    device const float* x [[buffer(0)]],      // [rows, in] aligned 16
    device const int* offsets [[buffer(1)]],  // [experts + 1]
    device const uint* packed
    [[buffer(2)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const S* scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group_size]
    device const S* biases [[buffer(4)]],  // [(matrices - 1) * biases_stride + out * in / group_size]
    device const int* slots [[buffer(5), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(6)]],                                      // [rows, out]
    constant uint& rows [[buffer(7)]],
    constant uint& in [[buffer(8)]],
    constant uint& out [[buffer(9)]],
    constant uint& group_size [[buffer(10)]],
    constant uint& experts [[buffer(11)]],
    constant uint& matrices [[buffer(12)]],
    constant ulong& packed_stride [[buffer(13)]],
    constant ulong& scales_stride [[buffer(14)]],
    constant ulong& biases_stride [[buffer(15)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const int number = matrix_of(slots, tile.expert, experts);
  const bool known = uint(number) < matrices;
  const uint own = number < 0 ? 0 : tile.rows;
  const Strides strides = {packed_stride, scales_stride, biases_stride};
  const Affine<bits, S> w =
      matrix_at<bits, S>(packed, scales, biases, known ? uint(number) : 0, strides, in, group_size);
  const uint first = tg.x * kTileOuts;
  multiply_tile<1>(
      &w, x + ulong(tile.row) * in, own, in, known && own > 0 ? w.units : 0, first, out,
      known ? 1.0f : float(NAN), y + ulong(tile.row) * out, tid, (threadgroup float*)memory);
}

INSTANTIATE_AFFINE(affine_grouped_matmul)
