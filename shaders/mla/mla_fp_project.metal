// Folded projections of latent attention on weights of small floats: each head has its own matrix.
#include "../common/row_teams.h"
#include "../fp/fp.h"

constexpr constant uint kThreads = 64;

// y[t, h] = W_h x[t, h].
// Layout: W_h is `out` rows of w from row h * stride + first on: one matrix can hold two of each head.
// Dispatch: groups (ceil_div(out, kTeamRows), heads, tokens), threads (kRowThreads)
// Requires: valid_teams; tokens > 0; heads > 0; in > 0; out > 0; in % 32 == 0; first + out <= stride
// Work: products (tokens * heads * in * out)
// Numerics: as fp_matvec.
template <uint bits, uint group>
kernel void mla_fp_project(
    device const float* x [[buffer(0)]],       // [tokens, heads, in] aligned 16
    device const uint* packed [[buffer(1)]],   // [heads * stride, in / 32 * bits] aligned 16
    device const uchar* scales [[buffer(2)]],  // [heads * stride, in / group]
    device float* y [[buffer(3)]],             // [tokens, heads, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& heads [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    constant uint& stride [[buffer(8)]],
    constant uint& first [[buffer(9)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[kTeamPartials];
  const ulong head = ulong(tg.z) * heads + tg.y;
  const ulong start = ulong(tg.y) * stride + first;
  const Fp<bits, group> w = {packed + start * (in / kUnit * bits), scales + start * (in / group), in / kUnit};
  const uint row = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + head * in, spans_of(w), row, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && row + tid < out) y[head * out + row + tid] = sums[0];
}

// y[t, h] = W_h^T x[t, h].
// Layout: W_h is `in` rows of w, each of `out` values, from row h * stride + first on.
// Dispatch: groups (ceil_div(out / kOctet, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; in > 0; out > 0; out % 32 == 0; first + in <= stride
// Work: products (tokens * heads * in * out)
// Numerics: f32 fma, rows ascending. Neighbouring threads read neighbouring octets of one row.
template <uint bits, uint group>
kernel void mla_fp_project_transposed(
    device const float* x [[buffer(0)]],       // [tokens, heads, in]
    device const uint* packed [[buffer(1)]],   // [heads * stride, out / 32 * bits]
    device const uchar* scales [[buffer(2)]],  // [heads * stride, out / group]
    device float* y [[buffer(3)]],             // [tokens, heads, out]
    constant uint& tokens [[buffer(4)]],
    constant uint& heads [[buffer(5)]],
    constant uint& in [[buffer(6)]],
    constant uint& out [[buffer(7)]],
    constant uint& stride [[buffer(8)]],
    constant uint& first [[buffer(9)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint index = tg.x * kThreads + tid;
  if (index >= out / kOctet) return;

  const ulong head = ulong(tg.z) * heads + tg.y;
  const ulong start = ulong(tg.y) * stride + first;
  const Fp<bits, group> w = {
      packed + start * (out / kUnit * bits), scales + start * (out / group), out / kUnit};
  x += head * in;
  float sums[kOctet] = {};
  for (uint row = 0; row < in; ++row) {
    float values[kOctet];
    dequantize_octet(w, row, index / kOctets, index % kOctets, values);
    for (uint i = 0; i < kOctet; ++i) sums[i] = fma(x[row], values[i], sums[i]);
  }
  for (uint i = 0; i < kOctet; ++i) y[head * out + index * kOctet + i] = sums[i];
}

INSTANTIATE_FP(mla_fp_project)
INSTANTIATE_FP(mla_fp_project_transposed)
