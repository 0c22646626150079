#include "../common/buckets.h"
#include "../common/slots.h"
#include "fp.h"

// y = silu(x G[e]^T) * (x U[e]^T) for the rows of x in bucket e, in one pass over x.
// Layout: as fp_grouped_matmul; gate and up have equal strides and slots.
// Dispatch: groups (ceil_div(out, kTileOuts / 2), ceil_div(rows, kTileTokens) + experts), threads (kTileThreads)
// Requires: in > 0; in % 32 == 0; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts
// Work: products (2 * rows * in * out),
//   bytes (rows * (in + out) * 4 + 2 * min(rows, matrices) * in * out * (bits + 1) / 8)
// Numerics: the products as fp_grouped_matmul. Rows in no bucket or of a negative slot are kept; an unknown slot
//   gives NaN.
template <uint bits, uint group>
kernel void fp_grouped_swiglu(
    device const float* x [[buffer(0)]],            // [rows, in] aligned 16
    device const int* offsets [[buffer(1)]],        // [experts + 1]
    device const uint* gate_packed [[buffer(2)]],   // [(matrices - 1) * packed_stride + out * in / 32 * bits]
    device const uchar* gate_scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group]
    device const float* gate_global_scale
    [[buffer(4), function_constant(has_global_scale)]],  // [(matrices - 1) * global_stride + 1]
    device const uint* up_packed [[buffer(5)]],   // [(matrices - 1) * packed_stride + out * in / 32 * bits]
    device const uchar* up_scales [[buffer(6)]],  // [(matrices - 1) * scales_stride + out * in / group]
    device const float* up_global_scale
    [[buffer(7), function_constant(has_global_scale)]],  // [(matrices - 1) * global_stride + 1]
    device const int* slots [[buffer(8), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(9)]],                                      // [rows, out]
    constant uint& rows [[buffer(10)]],
    constant uint& in [[buffer(11)]],
    constant uint& out [[buffer(12)]],
    constant uint& experts [[buffer(13)]],
    constant uint& matrices [[buffer(14)]],
    constant ulong& packed_stride [[buffer(15)]],
    constant ulong& scales_stride [[buffer(16)]],
    constant ulong& global_stride [[buffer(17)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const int number = matrix_of(slots, tile.expert, experts);
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const uint own = number < 0 ? 0 : tile.rows;
  const Fp<bits, group> w[2] = {
      matrix_at<bits, group>(gate_packed, gate_scales, matrix, packed_stride, scales_stride, in),
      matrix_at<bits, group>(up_packed, up_scales, matrix, packed_stride, scales_stride, in)};
  const float2 factors =
      known ? factors_at(gate_global_scale, up_global_scale, matrix, global_stride) : float2(NAN);
  const uint first = tg.x * (kTileOuts / 2);
  multiply_tile<2>(
      w, x + ulong(tile.row) * in, own, in, known && own > 0 ? w[0].units : 0, first, out, factors,
      y + ulong(tile.row) * out, tid, (threadgroup float*)memory);
}

INSTANTIATE_FP(fp_grouped_swiglu)
