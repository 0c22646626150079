#include "../common/buckets.h"
#include "fp.h"

// y = x W[e]^T for the rows of x in bucket e: one GEMM per non-empty bucket.
// Layout: x sorted by expert, bucket e = rows offsets[e] .. offsets[e + 1]; W as fp_experts_matvec.
// Dispatch: groups (ceil_div(out, kTile), ceil_div(rows, kTile) + experts), threads (kTileThreads)
// Requires: in > 0; in % 32 == 0; experts > 0
// Numerics: as fp_matmul. Rows outside every bucket are not written.
template <uint bits, uint group>
kernel void fp_grouped_matmul(
    device const float* x [[buffer(0)]],       // [rows, in]
    device const int* offsets [[buffer(1)]],   // [experts + 1]
    device const uint* packed [[buffer(2)]],   // [(experts - 1) * packed_stride + out * in / 32 * bits]
    device const uchar* scales [[buffer(3)]],  // [(experts - 1) * scales_stride + out * in / group]
    device const float* global_scale [[buffer(4), function_constant(has_global_scale)]],  // [experts]
    device float* y [[buffer(5)]],                                                        // [rows, out]
    constant uint& rows [[buffer(6)]],
    constant uint& in [[buffer(7)]],
    constant uint& out [[buffer(8)]],
    constant uint& experts [[buffer(9)]],
    constant ulong& packed_stride [[buffer(10)]],
    constant ulong& scales_stride [[buffer(11)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float tiles[2 * kTileFloats];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const Fp<bits, group> w =
      expert_matrix<bits, group>(packed, scales, tile.expert, packed_stride, scales_stride, 0, in);
  const float factor = has_global_scale ? global_scale[tile.expert] / kGlobalUnit : 1.0f;
  const uint first = tg.x * kTile;
  multiply_tile<1>(
      &w, x + ulong(tile.row) * in, tile.rows, in, tile.rows > 0 ? w.units : 0, first, out, tid, simd, tiles);
  store_tile(tiles + kTileFloats, y + ulong(tile.row) * out, tile.rows, first, out, tid, factor);
}

INSTANTIATE_FP(fp_grouped_matmul)
