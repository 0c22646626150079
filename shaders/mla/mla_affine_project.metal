// Folded projections of latent attention on quantised weights: each head has its own matrix.
#include "../affine/affine.h"
#include "../common/row_teams.h"

constexpr constant uint kThreads = 64;

// y[t, h] = W_h x[t, h].
// Layout: W_h is `out` rows of w from row h * stride + first on: one matrix can hold two of each head.
// Dispatch: groups (ceil_div(out, kTeamRows), heads, tokens), threads (kRowThreads)
// Requires: valid_teams; tokens > 0; heads > 0; in > 0; out > 0;
//   group_size == 32 || group_size == 64 || group_size == 128; in % group_size == 0; first + out <= stride
// Work: products (tokens * heads * in * out)
// Numerics: as affine_matvec.
template <uint bits, typename S>
kernel void mla_affine_project(
    device const float* x [[buffer(0)]],      // [tokens, heads, in] aligned 16
    device const uint* packed [[buffer(1)]],  // [heads * stride, in / 32 * bits] aligned 16
    device const S* scales [[buffer(2)]],     // [heads * stride, in / group_size]
    device const S* biases [[buffer(3)]],     // [heads * stride, in / group_size]
    device float* y [[buffer(4)]],            // [tokens, heads, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& heads [[buffer(6)]],
    constant uint& in [[buffer(7)]],
    constant uint& out [[buffer(8)]],
    constant uint& stride [[buffer(9)]],
    constant uint& first [[buffer(10)]],
    constant uint& group_size [[buffer(11)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong head = ulong(tg.z) * heads + tg.y;
  const ulong start = ulong(tg.y) * stride + first;
  const ulong groups = start * (in / group_size);
  const Affine<bits, S> w = affine_matrix<bits, S>(
      packed + start * (in / kUnit * bits), scales + groups, biases + groups, in, group_size);
  const uint row = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + head * in, spans_of(w), row, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && row + tid < out) y[head * out + row + tid] = sums[0];
}

// y[t, h] = W_h^T x[t, h].
// Layout: W_h is `in` rows of w, each of `out` values, from row h * stride + first on.
// Dispatch: groups (ceil_div(out / kOctet, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; in > 0; out > 0;
//   group_size == 32 || group_size == 64 || group_size == 128; out % group_size == 0; first + in <= stride
// Work: products (tokens * heads * in * out)
// Numerics: f32 fma, rows ascending. Neighbouring threads read neighbouring octets of one row.
template <uint bits, typename S>
kernel void mla_affine_project_transposed(
    device const float* x [[buffer(0)]],      // [tokens, heads, in]
    device const uint* packed [[buffer(1)]],  // [heads * stride, out / 32 * bits]
    device const S* scales [[buffer(2)]],     // [heads * stride, out / group_size]
    device const S* biases [[buffer(3)]],     // [heads * stride, out / group_size]
    device float* y [[buffer(4)]],            // [tokens, heads, out]
    constant uint& tokens [[buffer(5)]],
    constant uint& heads [[buffer(6)]],
    constant uint& in [[buffer(7)]],
    constant uint& out [[buffer(8)]],
    constant uint& stride [[buffer(9)]],
    constant uint& first [[buffer(10)]],
    constant uint& group_size [[buffer(11)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint index = tg.x * kThreads + tid;
  if (index >= out / kOctet) return;

  const ulong head = ulong(tg.z) * heads + tg.y;
  const ulong start = ulong(tg.y) * stride + first;
  const ulong groups = start * (out / group_size);
  const Affine<bits, S> w = affine_matrix<bits, S>(
      packed + start * (out / kUnit * bits), scales + groups, biases + groups, out, group_size);
  x += head * in;
  float sums[kOctet] = {};
  for (uint row = 0; row < in; ++row) {
    float values[kOctet];
    dequantize_octet(w, row, index / kOctets, index % kOctets, values);
    for (uint i = 0; i < kOctet; ++i) sums[i] = fma(x[row], values[i], sums[i]);
  }
  for (uint i = 0; i < kOctet; ++i) y[head * out + index * kOctet + i] = sums[i];
}

INSTANTIATE_AFFINE(mla_affine_project)
INSTANTIATE_AFFINE(mla_affine_project_transposed)
