#include "../common/buckets.h"
#include "experts.h"

// y = silu(x G[e]^T) * (x U[e]^T) for the rows of x in bucket e, in one pass over x.
// Layout: as affine_grouped_matmul; gate and up have equal strides and slots.
// Dispatch: groups (ceil_div(out, kTileOuts / 2), ceil_div(rows, kTileTokens) + experts), threads (kTileThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0;
//   experts > 0; matrices > 0; matrices <= kNoMatrix; by_slot || matrices == experts;
//   bits % 4 > 0 || packed_stride % 4 == 0
// Work: products (2 * rows * in * out),
//   bytes (rows * (in + out) * 4 + 2 * min(rows, matrices) * in * out * (bits + 1) / 8)
// Numerics: as affine_swiglu_matmul. Rows in no bucket or of a negative slot are kept; an unknown slot gives NaN.
template <uint bits, typename S>
kernel void affine_grouped_swiglu(
    device const float* x [[buffer(0)]],      // [rows, in] aligned 16
    device const int* offsets [[buffer(1)]],  // [experts + 1]
    device const uint* gate_packed
    [[buffer(2)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const S* gate_scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group_size]
    device const S* gate_biases [[buffer(4)]],  // [(matrices - 1) * biases_stride + out * in / group_size]
    device const uint* up_packed
    [[buffer(5)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const S* up_scales [[buffer(6)]],  // [(matrices - 1) * scales_stride + out * in / group_size]
    device const S* up_biases [[buffer(7)]],  // [(matrices - 1) * biases_stride + out * in / group_size]
    device const int* slots [[buffer(8), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(9)]],                                      // [rows, out]
    constant uint& rows [[buffer(10)]],
    constant uint& in [[buffer(11)]],
    constant uint& out [[buffer(12)]],
    constant uint& group_size [[buffer(13)]],
    constant uint& experts [[buffer(14)]],
    constant uint& matrices [[buffer(15)]],
    constant ulong& packed_stride [[buffer(16)]],
    constant ulong& scales_stride [[buffer(17)]],
    constant ulong& biases_stride [[buffer(18)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[kTileFloats / 4];
  const BucketTile tile = find_bucket_tile(offsets, experts, rows, tg.y);
  const int number = matrix_of(slots, tile.expert, experts);
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const uint own = number < 0 ? 0 : tile.rows;
  const Strides strides = {packed_stride, scales_stride, biases_stride};
  const Affine<bits, S> w[2] = {
      matrix_at<bits, S>(gate_packed, gate_scales, gate_biases, matrix, strides, in, group_size),
      matrix_at<bits, S>(up_packed, up_scales, up_biases, matrix, strides, in, group_size)};
  const uint first = tg.x * (kTileOuts / 2);
  multiply_tile<2>(
      w, x + ulong(tile.row) * in, own, in, known && own > 0 ? w[0].units : 0, first, out,
      known ? 1.0f : float(NAN), y + ulong(tile.row) * out, tid, (threadgroup float*)memory);
}

INSTANTIATE_AFFINE(affine_grouped_swiglu)
