// Attention over a compressed cache, second half.
#include "../attention/attention.h"
#include "rotation.h"

constant bool has_sinks [[function_constant(0)]];
constant bool unrotates [[function_constant(1)]];

constexpr constant uint kRows = 4;  // heads of one threadgroup, one per simdgroup

// y = sum_b e^(m_b - M) o_b / (sum_b e^(m_b - M) l_b + e^(sink - M)), M the largest m_b and sink; see
// turbo_partials. Blocks with l = 0 are skipped; a row of such blocks alone is 0. Then signs * (T^t y) if it
// unrotates.
// Layout: contiguous; a sink is a logit, neither scaled nor capped. tokens are those of all sequences.
// Dispatch: groups (ceil_div(tokens * heads, kRows)), threads (32 * kRows)
// Requires: tokens > 0; heads > 0; blocks > 0; dim > 0; dim <= kMaxDim; tokens * heads <= 2147483647;
//   512 % dim == 0 || (dim % 12 == 0 && 384 % dim == 0) || (dim % 20 == 0 && 320 % dim == 0)
// Numerics: f32, blocks ascending, rounded once to the type of y; NaN and inf reach only their own row.
template <typename T>
kernel void turbo_merge(
    device const float* o [[buffer(0)]],                                    // [tokens, heads, blocks, dim]
    device const float* m [[buffer(1)]],                                    // [tokens, heads, blocks]
    device const float* l [[buffer(2)]],                                    // [tokens, heads, blocks]
    device const float* sinks [[buffer(3), function_constant(has_sinks)]],  // [heads]
    device const float* signs [[buffer(4), function_constant(unrotates)]],  // [dim]
    device T* y [[buffer(5)]],                                              // [tokens, heads, dim]
    constant uint& tokens [[buffer(6)]],
    constant uint& heads [[buffer(7)]],
    constant uint& blocks [[buffer(8)]],
    constant uint& dim [[buffer(9)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[kRows * kMaxDim];
  const uint index = tg * kRows + simd;
  if (index >= tokens * heads) return;
  threadgroup float* row = memory + simd * kMaxDim;
  o += ulong(index) * blocks * dim;
  m += ulong(index) * blocks;
  l += ulong(index) * blocks;
  y += ulong(index) * dim;

  float top = -INFINITY;
  for (uint b = 0; b < blocks; ++b) {
    if (l[b] != 0.0f) top = max(top, m[b]);
  }
  float total = 0.0f;
  for (uint b = 0; b < blocks; ++b) {
    if (l[b] != 0.0f) total = fma(softmax_weight(m[b], top), l[b], total);
  }
  const float inverse = normalizer(top, total, has_sinks ? sinks[index % heads] : -INFINITY);
  for (uint i = lane; i < dim; i += 32) {
    float sum = 0.0f;
    for (uint b = 0; b < blocks; ++b) {
      if (l[b] != 0.0f) sum = fma(softmax_weight(m[b], top), o[ulong(b) * dim + i], sum);
    }
    row[i] = sum * inverse;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (unrotates) hadamard_row(row, dim, true, lane);
  const float factor = 1.0f / sqrt(float(dim));
  for (uint i = lane; i < dim; i += 32) y[i] = T(unrotates ? row[i] * (factor * signs[i]) : row[i]);
}

template [[host_name("turbo_merge_f32")]] kernel decltype(turbo_merge<float>) turbo_merge<float>;
template [[host_name("turbo_merge_f16")]] kernel decltype(turbo_merge<half>) turbo_merge<half>;
template [[host_name("turbo_merge_bf16")]] kernel decltype(turbo_merge<bfloat>) turbo_merge<bfloat>;
