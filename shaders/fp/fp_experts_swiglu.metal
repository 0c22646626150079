#include "../common/activations.h"
#include "../common/rows.h"
#include "../common/slots.h"
#include "fp.h"

// y[t, j] = silu(G[e] x[t]) * (U[e] x[t]), e = ids[t, j], for the k experts of each token.
// Layout: as fp_experts_matvec; gate and up have equal strides and slots.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), k, tokens), threads (kRowThreads)
// Requires: in > 0; in % 32 == 0; x_rows == 1 || x_rows == k; experts > 0; matrices > 0;
//   matrices <= kNoMatrix; by_slot || matrices == experts;
//   bits % 4 > 0 || packed_stride % 4 == 0
// Work: products (2 * tokens * k * in * out),
//   bytes (2 * min(tokens * k, matrices) * in * out * (bits + 1) / 8)
// Numerics: as fp_swiglu. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <uint bits, uint group>
kernel void fp_experts_swiglu(
    device const float* x [[buffer(0)]],  // [tokens, x_rows, in] aligned 16
    device const int* ids [[buffer(1)]],  // [tokens, k]
    device const uint* gate_packed
    [[buffer(2)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const uchar* gate_scales [[buffer(3)]],  // [(matrices - 1) * scales_stride + out * in / group]
    device const float* gate_global_scale
    [[buffer(4), function_constant(has_global_scale)]],  // [(matrices - 1) * global_stride + 1]
    device const uint* up_packed
    [[buffer(5)]],  // [(matrices - 1) * packed_stride + out * in / 32 * bits] aligned 16
    device const uchar* up_scales [[buffer(6)]],  // [(matrices - 1) * scales_stride + out * in / group]
    device const float* up_global_scale
    [[buffer(7), function_constant(has_global_scale)]],  // [(matrices - 1) * global_stride + 1]
    device const int* slots [[buffer(8), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(9)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(10)]],
    constant uint& k [[buffer(11)]],
    constant uint& x_rows [[buffer(12)]],
    constant uint& in [[buffer(13)]],
    constant uint& out [[buffer(14)]],
    constant uint& experts [[buffer(15)]],
    constant uint& matrices [[buffer(16)]],
    constant ulong& packed_stride [[buffer(17)]],
    constant ulong& scales_stride [[buffer(18)]],
    constant ulong& global_stride [[buffer(19)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[2 * kRowPartials];
  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  const bool known = uint(number) < matrices;
  const uint matrix = known ? uint(number) : 0;
  const Fp<bits, group> w[2] = {
      matrix_at<bits, group>(gate_packed, gate_scales, matrix, packed_stride, scales_stride, in),
      matrix_at<bits, group>(up_packed, up_scales, matrix, packed_stride, scales_stride, in)};

  const ulong row = ulong(tg.z) * x_rows + tg.y % x_rows;
  const uint first = tg.x * kRowsPerGroup;
  float sums[2];
  multiply_rows<2>(w, x + row * in, known ? spans_of(w[0]) : 0, first, out, tid, kRowTeams, partial, sums);
  if (tid >= kRowsPerGroup || first + tid >= out) return;
  const float2 factors = factors_at(gate_global_scale, up_global_scale, matrix, global_stride);
  y[choice * out + first + tid] = known ? silu(sums[0] * factors.x) * (sums[1] * factors.y) : NAN;
}

INSTANTIATE_FP(fp_experts_swiglu)
