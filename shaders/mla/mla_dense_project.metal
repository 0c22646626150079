// Folded projections of latent attention on weights that are not quantised: each head has its own matrix.
#include "../linear/dot_row.h"

constexpr constant uint kRows = 8;  // weight rows of one threadgroup, one per simdgroup
constexpr constant uint kThreads = 64;

// y[t, h] = W_h x[t, h].
// Layout: W_h is `out` rows of w from row h * stride + first on: one matrix can hold two of each head.
// Dispatch: groups (ceil_div(out, kRows), heads, tokens), threads (32 * kRows)
// Requires: tokens > 0; heads > 0; in > 0; out > 0; first + out <= stride
// Numerics: as matmul.
template <typename W>
kernel void mla_dense_project(
    device const float* x [[buffer(0)]],   // [tokens, heads, in]
    device const W* weight [[buffer(1)]],  // [heads * stride, in]
    device float* y [[buffer(2)]],         // [tokens, heads, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    constant uint& stride [[buffer(7)]],
    constant uint& first [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint r = tg.x * kRows + simd;
  if (r >= out) return;
  const ulong head = ulong(tg.z) * heads + tg.y;
  const ulong row = ulong(tg.y) * stride + first + r;
  dot_row<W, 1>(weight + row * in, x + head * in, y + head * out + r, in, out, lane);
}

// y[t, h] = W_h^T x[t, h].
// Layout: W_h is `in` rows of w, each of `out` values, from row h * stride + first on.
// Dispatch: groups (ceil_div(out, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; in > 0; out > 0; first + in <= stride
// Numerics: f32 fma, rows ascending. Neighbouring threads read neighbouring values of one row.
template <typename W>
kernel void mla_dense_project_transposed(
    device const float* x [[buffer(0)]],   // [tokens, heads, in]
    device const W* weight [[buffer(1)]],  // [heads * stride, out]
    device float* y [[buffer(2)]],         // [tokens, heads, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    constant uint& stride [[buffer(7)]],
    constant uint& first [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint column = tg.x * kThreads + tid;
  if (column >= out) return;

  const ulong head = ulong(tg.z) * heads + tg.y;
  weight += (ulong(tg.y) * stride + first) * out + column;
  x += head * in;
  float sum = 0.0f;
  for (uint row = 0; row < in; ++row) sum = fma(x[row], float(weight[ulong(row) * out]), sum);
  y[head * out + column] = sum;
}

#define INSTANTIATE_DENSE_AS(op, type, name) \
  template [[host_name(#op "_" #name)]] kernel decltype(op<type>) op<type>;
#define INSTANTIATE_DENSE(op)          \
  INSTANTIATE_DENSE_AS(op, float, f32) \
  INSTANTIATE_DENSE_AS(op, half, f16)  \
  INSTANTIATE_DENSE_AS(op, bfloat, bf16)
INSTANTIATE_DENSE(mla_dense_project)
INSTANTIATE_DENSE(mla_dense_project_transposed)
