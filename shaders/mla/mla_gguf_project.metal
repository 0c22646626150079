// Folded projections of latent attention on weights in blocks of GGUF: each head has its own matrix.
#include "../common/row_teams.h"
#include "../gguf/gguf.h"

constexpr constant uint kThreads = 64;

// y[t, h] = W_h x[t, h].
// Layout: W_h is `out` rows of w from row h * stride + first on: one matrix can hold two of each head.
// Dispatch: groups (ceil_div(out, kTeamRows), heads, tokens), threads (kRowThreads)
// Requires: valid_teams; tokens > 0; heads > 0; in > 0; out > 0; in % block == 0; first + out <= stride
// Work: products (tokens * heads * in * out)
// Numerics: as gguf_matvec.
template <uint type, uint block, uint block_bytes>
kernel void mla_gguf_project(
    device const float* x [[buffer(0)]],       // [tokens, heads, in] aligned 16
    device const uchar* blocks [[buffer(1)]],  // [heads * stride, in / block * block_bytes] aligned 16
    device float* y [[buffer(2)]],             // [tokens, heads, out]
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
  const ulong start = ulong(tg.y) * stride + first;
  const Blocks<type, block, block_bytes> w = {blocks + start * (in / block * block_bytes), in / kUnit};
  const uint row = tg.x * kTeamRows;
  float sums[1];
  multiply_rows<1>(&w, x + head * in, spans_of(w), row, out, tid, kTeams, partial, sums);
  if (tid < kTeamRows && row + tid < out) y[head * out + row + tid] = sums[0];
}

// y[t, h] = W_h^T x[t, h].
// Layout: W_h is `in` rows of w, each of `out` values, from row h * stride + first on.
// Dispatch: groups (ceil_div(out / kOctet, kThreads), heads, tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; in > 0; out > 0; out % block == 0; first + in <= stride
// Work: products (tokens * heads * in * out)
// Numerics: f32 fma, rows ascending. Neighbouring threads read neighbouring octets of one row.
template <uint type, uint block, uint block_bytes>
kernel void mla_gguf_project_transposed(
    device const float* x [[buffer(0)]],       // [tokens, heads, in]
    device const uchar* blocks [[buffer(1)]],  // [heads * stride, out / block * block_bytes]
    device float* y [[buffer(2)]],             // [tokens, heads, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    constant uint& out [[buffer(6)]],
    constant uint& stride [[buffer(7)]],
    constant uint& first [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint index = tg.x * kThreads + tid;
  if (index >= out / kOctet) return;

  const ulong head = ulong(tg.z) * heads + tg.y;
  const ulong start = ulong(tg.y) * stride + first;
  const Blocks<type, block, block_bytes> w = {blocks + start * (out / block * block_bytes), out / kUnit};
  x += head * in;
  float sums[kOctet] = {};
  for (uint row = 0; row < in; ++row) {
    float values[kOctet];
    dequantize_octet(w, row, index / kOctets, index % kOctets, values);
    for (uint i = 0; i < kOctet; ++i) sums[i] = fma(x[row], values[i], sums[i]);
  }
  for (uint i = 0; i < kOctet; ++i) y[head * out + index * kOctet + i] = sums[i];
}

INSTANTIATE_GGUF(mla_gguf_project)
INSTANTIATE_GGUF(mla_gguf_project_transposed)
