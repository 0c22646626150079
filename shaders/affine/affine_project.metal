// All projections of one token's input in one launch, with what comes before and after them.
#include "../common/activations.h"
#include "../common/joined.h"
#include "../norm/inverse_norm.h"
#include "affine.h"

constant bool has_norm [[function_constant(0)]];
constant bool has_conv [[function_constant(1)]];

// The sum of two vectors.
struct Sum {
  device const float* x;
  device const float* residual;
  float operator[](uint i) const { return x[i] + residual[i]; }
};

// The input of the products: x, or with a norm the sum, normalised.
template <typename S>
struct Input {
  Sum sum;
  device const S* weight;
  float inverse;
  float normed(uint i) const { return sum[i] * inverse * float(weight[i]); }
};

template <typename S>
inline float4 load_four(Input<S> input, uint i) {
  if (!has_norm) return load_four(input.sum.x, i);
  const float4 sum = load_four(input.sum.x, i) + load_four(input.sum.residual, i);
  const float4 weight = {
      float(input.weight[i]), float(input.weight[i + 1]), float(input.weight[i + 2]),
      float(input.weight[i + 3])};
  return sum * input.inverse * weight;
}

// y = x W^T + bias for each of up to four matrices a, b, c and d, as affine_matvec. With a norm, x is replaced by
// h = rms_norm(x + residual), which is stored with the sum; with a convolution a's result is that of conv1d.
// Layout: as affine_matvec; history updated in place, no result overlaps an input.
// Dispatch: groups (ceil_div(a_out, kRowsPerGroup) + ceil_div(b_out, kRowsPerGroup) +
//   ceil_div(c_out, kRowsPerGroup) + ceil_div(d_out, kRowsPerGroup)), threads (kRowThreads)
// Requires: group_size == 32 || group_size == 64 || group_size == 128; in > 0; in % group_size == 0; eps >= 0;
//   a_out > 0; has_b || b_out == 0; has_c || c_out == 0; has_d || d_out == 0; has_b || !has_c; has_c || !has_d
// Numerics: as affine_matvec, rms_norm and conv1d.
template <uint bits, typename S>
kernel void affine_project(
    device const float* x [[buffer(0)]],                                      // [in] aligned 16
    device const float* residual [[buffer(1), function_constant(has_norm)]],  // [in] aligned 16
    device const S* norm_weight [[buffer(2), function_constant(has_norm)]],   // [in]
    device float* h [[buffer(3), function_constant(has_norm)]],               // [in]
    device float* sum [[buffer(4), function_constant(has_norm)]],             // [in]
    device const uint* a_packed [[buffer(5)]],  // [a_out, in / 32 * bits] aligned 16
    device const S* a_scales [[buffer(6)]],     // [a_out, in / group_size]
    device const S* a_biases [[buffer(7)]],     // [a_out, in / group_size]
    device float* a_y [[buffer(8)]],            // [a_out]
    device const uint* b_packed
    [[buffer(9), function_constant(has_b)]],                            // [b_out, in / 32 * bits] aligned 16
    device const S* b_scales [[buffer(10), function_constant(has_b)]],  // [b_out, in / group_size]
    device const S* b_biases [[buffer(11), function_constant(has_b)]],  // [b_out, in / group_size]
    device float* b_y [[buffer(12), function_constant(has_b)]],         // [b_out]
    device const uint* c_packed
    [[buffer(13), function_constant(has_c)]],                           // [c_out, in / 32 * bits] aligned 16
    device const S* c_scales [[buffer(14), function_constant(has_c)]],  // [c_out, in / group_size]
    device const S* c_biases [[buffer(15), function_constant(has_c)]],  // [c_out, in / group_size]
    device float* c_y [[buffer(16), function_constant(has_c)]],         // [c_out]
    device const uint* d_packed
    [[buffer(17), function_constant(has_d)]],                           // [d_out, in / 32 * bits] aligned 16
    device const S* d_scales [[buffer(18), function_constant(has_d)]],  // [d_out, in / group_size]
    device const S* d_biases [[buffer(19), function_constant(has_d)]],  // [d_out, in / group_size]
    device float* d_y [[buffer(20), function_constant(has_d)]],         // [d_out]
    device float* history [[buffer(21), function_constant(has_conv)]],  // [3, a_out]
    device const S* taps [[buffer(22), function_constant(has_conv)]],   // [a_out, 4]
    device const float* bias [[buffer(23), function_constant(adds_bias)]],  // [a_out + b_out + c_out + d_out]
    constant uint& in [[buffer(24)]],
    constant uint& a_out [[buffer(25)]],
    constant uint& b_out [[buffer(26)]],
    constant uint& c_out [[buffer(27)]],
    constant uint& d_out [[buffer(28)]],
    constant uint& group_size [[buffer(29)]],
    constant float& eps [[buffer(30)]],
    uint tg [[threadgroup_position_in_grid]],
    uint groups [[threadgroups_per_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[kRowPartials];
  threadgroup float squares[kRowSimdgroups];
  Joined<Affine<bits, S>> own = {
      affine_matrix<bits, S>(a_packed, a_scales, a_biases, in, group_size), a_y, a_out, tg, 0};
  if (is_past(own) && has_b)
    own = following(own, affine_matrix<bits, S>(b_packed, b_scales, b_biases, in, group_size), b_y, b_out);
  if (is_past(own) && has_c)
    own = following(own, affine_matrix<bits, S>(c_packed, c_scales, c_biases, in, group_size), c_y, c_out);
  if (is_past(own) && has_d)
    own = following(own, affine_matrix<bits, S>(d_packed, d_scales, d_biases, in, group_size), d_y, d_out);

  const uint first = own.group * kRowsPerGroup;
  const uint out = own.out;
  typename Affine<bits, S>::Span asked[kRows];
  const TeamRows<1, Affine<bits, S>> rows = rows_of<1>(&own.w, first, out, tid, kRowTeams);
  ask_rows(rows, spans_of(own.w), tid, kRowTeams, asked);
  Input<S> input = {{x, residual}, norm_weight, 1.0f};
  if (has_norm) {
    const ThreadgroupRow shared = {tid, kRowThreads, lane, simd, squares};
    input.inverse = inverse_norm(input.sum, in, float(in), eps, shared);
    for (uint i = tg * kRowThreads + tid; i < in; i += groups * kRowThreads) {
      sum[i] = input.sum[i];
      h[i] = input.normed(i);
    }
  }
  float sums[1];
  multiply_asked(rows, input, spans_of(own.w), tid, kRowTeams, partial, asked, sums);

  const uint row = first + tid;
  if (tid >= kRowsPerGroup || row >= out) return;
  float value = with_bias(own, row, sums[0], bias);
  if (has_conv && own.before == 0) {
    device float* past = history + row;
    const float4 u = float4(past[0], past[out], past[2 * ulong(out)], value);
    taps += ulong(row) * 4;
    past[0] = u.y;
    past[out] = u.z;
    past[2 * ulong(out)] = u.w;
    value = silu(
        fma(float(taps[3]), u.w, fma(float(taps[2]), u.z, fma(float(taps[1]), u.y, float(taps[0]) * u.x))));
  }
  own.y[row] = value;
}

// The widths and types of most models.
INSTANTIATE_AFFINE_AS(affine_project, 4, half, f16)
INSTANTIATE_AFFINE_AS(affine_project, 4, bfloat, bf16)
INSTANTIATE_AFFINE_AS(affine_project, 8, half, f16)
INSTANTIATE_AFFINE_AS(affine_project, 8, bfloat, bf16)
