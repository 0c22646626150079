// Products with a stack of experts that are not quantised.
#include "../common/slots.h"
#include "dot_row.h"

constexpr constant uint kRows = 8;  // weight rows of one threadgroup, one per simdgroup

// y[t, j] = W[ids[t, j]] x[t] for the k experts of each token; x has one row per token, or one per (t, j).
// Layout: matrix m is m * weight_stride elements after the base; expert e has matrix e, by slot slots[e].
// Dispatch: groups (ceil_div(out, kRows), k, tokens), threads (32 * kRows)
// Requires: in > 0; x_rows == 1 || x_rows == k; experts > 0; matrices > 0; matrices <= kNoMatrix;
//   by_slot || matrices == experts
// Numerics: as matmul. Rows of a negative slot stay as they are; an unknown id or slot gives NaN.
template <typename W>
kernel void dense_experts_matvec(
    device const float* x [[buffer(0)]],   // [tokens, x_rows, in]
    device const int* ids [[buffer(1)]],   // [tokens, k]
    device const W* weight [[buffer(2)]],  // [(matrices - 1) * weight_stride + out * in]
    device const int* slots [[buffer(3), function_constant(by_slot)]],  // [experts]
    device float* y [[buffer(4)]],                                      // [tokens, k, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& k [[buffer(6)]],
    constant uint& x_rows [[buffer(7)]],
    constant uint& in [[buffer(8)]],
    constant uint& out [[buffer(9)]],
    constant uint& experts [[buffer(10)]],
    constant uint& matrices [[buffer(11)]],
    constant ulong& weight_stride [[buffer(12)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint r = tg.x * kRows + simd;
  if (r >= out) return;

  const ulong choice = ulong(tg.z) * k + tg.y;
  const int number = matrix_of(slots, uint(ids[choice]), experts);  // a negative id is a large one
  if (number < 0) return;
  y += choice * out + r;
  if (uint(number) >= matrices) {
    if (lane == 0) *y = NAN;
    return;
  }
  x += (ulong(tg.z) * x_rows + tg.y % x_rows) * in;
  dot_row<W, 1>(weight + uint(number) * weight_stride + ulong(r) * in, x, y, in, out, lane);
}

template [[host_name(
    "dense_experts_matvec_f32")]] kernel decltype(dense_experts_matvec<float>) dense_experts_matvec<float>;
template [[host_name(
    "dense_experts_matvec_f16")]] kernel decltype(dense_experts_matvec<half>) dense_experts_matvec<half>;
template [[host_name(
    "dense_experts_matvec_bf16")]] kernel decltype(dense_experts_matvec<bfloat>) dense_experts_matvec<bfloat>;
