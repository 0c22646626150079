// Attention over a compressed cache, second half.
#include "../attention/merge.h"
#include "../common/activations.h"
#include "rotation.h"

constant bool has_sinks [[function_constant(0)]];
constant bool unrotates [[function_constant(1)]];
constant bool has_gate [[function_constant(2)]];

constexpr constant uint kColumns = kMaxDim / 32;  // of a lane

// y = sum_b e^(m_b - M) o_b / (sum_b e^(m_b - M) l_b + e^(sink - M)), M the largest m_b and sink; see
// turbo_partials. Blocks with l = 0 are skipped; a row of such blocks alone is 0. Then signs * (T^t y) if it
// unrotates, then y * sigmoid(gate).
// Layout: contiguous; sinks and gates as for attention_merge. tokens are those of all sequences.
// Dispatch: groups (tokens * heads), threads (32 * kMergeSimdgroups)
// Requires: tokens > 0; heads > 0; blocks > 0; dim > 0; dim <= kMaxDim; tokens * heads <= 2147483647;
//   512 % dim == 0 || (dim % 12 == 0 && 384 % dim == 0) || (dim % 20 == 0 && 320 % dim == 0)
// Numerics: f32, rounded once to the type of y; NaN and inf reach only their own row.
template <typename T>
kernel void turbo_merge(
    device const float* o [[buffer(0)]],                                    // [tokens, heads, blocks, dim]
    device const float* m [[buffer(1)]],                                    // [tokens, heads, blocks]
    device const float* l [[buffer(2)]],                                    // [tokens, heads, blocks]
    device const float* sinks [[buffer(3), function_constant(has_sinks)]],  // [heads]
    device const float* signs [[buffer(4), function_constant(unrotates)]],  // [dim]
    device const float* gate [[buffer(5), function_constant(has_gate)]],    // [tokens, heads, 2, dim]
    device T* y [[buffer(6)]],                                              // [tokens, heads, dim]
    constant uint& tokens [[buffer(7)]],
    constant uint& heads [[buffer(8)]],
    constant uint& blocks [[buffer(9)]],
    constant uint& dim [[buffer(10)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[kMergeSimdgroups * kMaxDim];
  o += ulong(tg) * blocks * dim;
  m += ulong(tg) * blocks;
  l += ulong(tg) * blocks;
  y += ulong(tg) * dim;
  const RowTotal all = row_total(m, l, blocks, lane);
  float sums[kColumns];
  sum_blocks<kColumns>(o, m, l, all.top, all.used, dim, lane, simd, lane, sums);
#pragma unroll
  for (uint i = 0; i < kColumns; ++i) memory[simd * kMaxDim + i * 32 + lane] = sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float inverse = normalizer(all.top, all.total, has_sinks ? sinks[tg % heads] : -INFINITY);
  for (uint i = simd * 32 + lane; i < dim; i += 32 * kMergeSimdgroups) {
    float sum = 0.0f;
#pragma unroll
    for (uint s = 0; s < kMergeSimdgroups; ++s) sum += memory[s * kMaxDim + i];
    memory[i] = sum * inverse;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd > 0) return;
  if (unrotates) hadamard_row(memory, dim, true, lane);
  const float factor = 1.0f / sqrt(float(dim));
  for (uint i = lane; i < dim; i += 32) {
    float value = unrotates ? memory[i] * (factor * signs[i]) : memory[i];
    if (has_gate) value *= sigmoid(gate[(2 * ulong(tg) + 1) * dim + i]);
    y[i] = T(value);
  }
}

template [[host_name("turbo_merge_f32")]] kernel decltype(turbo_merge<float>) turbo_merge<float>;
template [[host_name("turbo_merge_f16")]] kernel decltype(turbo_merge<half>) turbo_merge<half>;
template [[host_name("turbo_merge_bf16")]] kernel decltype(turbo_merge<bfloat>) turbo_merge<bfloat>;
