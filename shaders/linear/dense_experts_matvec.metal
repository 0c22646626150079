// Products with a stack of experts that are not quantised.
#include "dot_row.h"

constexpr constant uint kRows = 8;  // weight rows of one threadgroup, one per simdgroup

// y[t, j] = W[ids[t, j]] x[t] for the k experts of each token; x has one row per token, or one per (t, j).
// Layout: all row-major and contiguous.
// Dispatch: groups (ceil_div(out, kRows), k, tokens), threads (32 * kRows)
// Requires: in > 0; x_rows == 1 || x_rows == k; experts > 0
// Numerics: as matmul. An id outside [0, experts) gives NaN.
template <typename W>
kernel void dense_experts_matvec(
    device const float* x [[buffer(0)]],   // [tokens, x_rows, in]
    device const int* ids [[buffer(1)]],   // [tokens, k]
    device const W* weight [[buffer(2)]],  // [experts, out, in]
    device float* y [[buffer(3)]],         // [tokens, k, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& k [[buffer(5)]],
    constant uint& x_rows [[buffer(6)]],
    constant uint& in [[buffer(7)]],
    constant uint& out [[buffer(8)]],
    constant uint& experts [[buffer(9)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint r = tg.x * kRows + simd;
  if (r >= out) return;

  const ulong choice = ulong(tg.z) * k + tg.y;
  const uint expert = uint(ids[choice]);  // a negative id is a large one
  y += choice * out + r;
  if (expert >= experts) {
    if (lane == 0) *y = NAN;
    return;
  }
  x += (ulong(tg.z) * x_rows + tg.y % x_rows) * in;
  dot_row<W, 1>(weight + (ulong(expert) * out + r) * in, x, y, in, out, lane);
}

template [[host_name(
    "dense_experts_matvec_f32")]] kernel decltype(dense_experts_matvec<float>) dense_experts_matvec<float>;
template [[host_name(
    "dense_experts_matvec_f16")]] kernel decltype(dense_experts_matvec<half>) dense_experts_matvec<half>;
template [[host_name(
    "dense_experts_matvec_bf16")]] kernel decltype(dense_experts_matvec<bfloat>) dense_experts_matvec<bfloat>;
