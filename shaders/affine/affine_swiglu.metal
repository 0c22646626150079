#include "../common/activations.h"
#include "../common/rows.h"
#include "affine.h"

// y = silu(x G^T) * (x U^T) for few tokens, in one pass over x; G and U have equal width, group and shape.
// Layout: as affine_matvec, gate and up alike.
// Dispatch: groups (ceil_div(out, kRowsPerGroup), tokens), threads (kRowThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0
// Work: products (2 * tokens * in * out)
// Numerics: f32; the products as affine_matvec.
template <uint bits, typename S>
kernel void affine_swiglu(
    device const float* x [[buffer(0)]],           // [tokens, in] aligned 16
    device const uint* gate_packed [[buffer(1)]],  // [out, in / 32 * bits] aligned 16
    device const S* gate_scales [[buffer(2)]],     // [out, in / group_size]
    device const S* gate_biases [[buffer(3)]],     // [out, in / group_size]
    device const uint* up_packed [[buffer(4)]],    // [out, in / 32 * bits] aligned 16
    device const S* up_scales [[buffer(5)]],       // [out, in / group_size]
    device const S* up_biases [[buffer(6)]],       // [out, in / group_size]
    device float* y [[buffer(7)]],                 // [tokens, out]
    constant uint& tokens [[buffer(8)]],
    constant uint& in [[buffer(9)]],
    constant uint& out [[buffer(10)]],
    constant uint& group_size [[buffer(11)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float partial[2 * kRowPartials];
  const Affine<bits, S> w[2] = {
      affine_matrix<bits, S>(gate_packed, gate_scales, gate_biases, in, group_size),
      affine_matrix<bits, S>(up_packed, up_scales, up_biases, in, group_size)};
  const uint first = tg.x * kRowsPerGroup;
  float sums[2];
  multiply_rows<2>(w, x + ulong(tg.y) * in, spans_of(w[0]), first, out, tid, kRowTeams, partial, sums);
  if (tid < kRowsPerGroup && first + tid < out) y[ulong(tg.y) * out + first + tid] = silu(sums[0]) * sums[1];
}

INSTANTIATE_AFFINE(affine_swiglu)
