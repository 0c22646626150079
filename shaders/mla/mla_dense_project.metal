// Folded projections of latent attention on weights that are not quantised: each head has its own matrix.
#include "../linear/dense_rows.h"

constexpr constant uint kThreads = 64;

// y[t, h] = W_h x[t, h].
// Layout: W_h is `out` rows of w from row h * stride + first on: one matrix can hold two of each head.
// Dispatch: groups (ceil_div(out, kTeamRows), heads, tokens), threads (kRowThreads)
// Requires: valid_teams; tokens > 0; heads > 0; in > 0; out > 0; first + out <= stride
// Work: products (tokens * heads * in * out)
// Numerics: as dense_matvec.
template <typename W>
kernel void mla_dense_project(
    device const float* x [[buffer(0)]],   // [tokens, heads, in] aligned 16
    device const W* weight [[buffer(1)]],  // [heads * stride, in] aligned 16
    device float* y [[buffer(2)]],         // [tokens, heads, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    constant uint& stride [[buffer(7)]],
    constant uint& first [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong head = ulong(tg.z) * heads + tg.y;
  const uint row = tg.x * kTeamRows;
  const float sum = multiply_dense(
      weight + (ulong(tg.y) * stride + first) * in, x + head * in, in, has_units(in, 0), row, out, tid,
      partial);
  if (tid < kTeamRows && row + tid < out) y[head * out + row + tid] = sum;
}

// y[t, h] = W_h^T x[t, h].
// Layout: W_h is `in` rows of w, each of `out` values, from row h * stride + first on.
// Dispatch: groups (ceil_div(out, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; in > 0; out > 0; first + in <= stride
// Work: products (tokens * heads * in * out)
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

INSTANTIATE_DENSE(mla_dense_project)
INSTANTIATE_DENSE(mla_dense_project_transposed)
