// One token through a delta net: norms of query and key, gates, the gated delta rule and the output norm.
#include "../norm/inverse_norm.h"
#include "gates.h"
#include "rule.h"

constant bool tiled [[function_constant(0)]];  // value heads of one key head lie k_heads apart, not together

constexpr constant uint kSimdgroups = 16;      // of one threadgroup
constexpr constant uint kOwnRows = 2 * kRows;  // state rows that a simdgroup reads at once

// qk_norm, decay_beta, delta_net and gated_rms_norm of one token, one after the other.
// Layout: mixed has all queries, keys and values, head by head; state in place; y overlaps no input.
// Dispatch: groups (v_heads), threads (32 * kSimdgroups)
// Requires: k_heads > 0; v_heads > 0; v_heads % k_heads == 0; v_dim > 0; v_dim % kOwnRows == 0; eps >= 0; qk_eps >= 0
// Numerics: as these kernels; NaN of a query or of z reaches y only, other NaN its head's state.
template <uint columns>
[[max_total_threads_per_threadgroup(32 * kSimdgroups)]] kernel void delta_step(
    device const float* mixed [[buffer(0)]],    // [2 * k_heads * columns * 32 + v_heads * v_dim]
    device const float* z [[buffer(1)]],        // [v_heads, v_dim]
    device const float* a [[buffer(2)]],        // [v_heads]
    device const float* b [[buffer(3)]],        // [v_heads]
    device const float* a_log [[buffer(4)]],    // [v_heads]
    device const float* dt_bias [[buffer(5)]],  // [v_heads]
    device const float* weight [[buffer(6)]],   // [v_dim]
    device float* state [[buffer(7)]],          // [v_heads, v_dim, columns * 32]
    device float* y [[buffer(8)]],              // [v_heads, v_dim]
    constant uint& k_heads [[buffer(9)]],
    constant uint& v_heads [[buffer(10)]],
    constant uint& v_dim [[buffer(11)]],
    constant float& qk_eps [[buffer(12)]],
    constant float& eps [[buffer(13)]],
    uint head [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint k_dim = columns * 32;
  const uint key_head = tiled ? head % k_heads : head / (v_heads / k_heads);
  device const float* q = mixed + ulong(key_head) * k_dim;
  device const float* k = q + ulong(k_heads) * k_dim;
  device const float* v = mixed + 2 * ulong(k_heads) * k_dim + ulong(head) * v_dim;
  state += ulong(head) * v_dim * k_dim + lane;
  y += ulong(head) * v_dim;

  const SimdgroupRow row = {lane, 32};
  const float q_scale = inverse_norm(q, k_dim, 1.0f, qk_eps, row) * rsqrt(float(k_dim));
  const float k_scale = inverse_norm(k, k_dim, 1.0f, qk_eps, row);
  float query[columns];
  float key[columns];
#pragma unroll
  for (uint c = 0; c < columns; ++c) {
    query[c] = q[lane + c * 32] * q_scale;
    key[c] = k[lane + c * 32] * k_scale;
  }
  const float decay = decay_of(a[head], a_log[head], dt_bias[head]);
  const float rate = sigmoid(b[head]);

  const float key_query = key_times_query<columns>(key, query);
  const uint row_of_lane = lane % kRows;

  for (uint first = simd * kOwnRows; first < v_dim; first += kOwnRows * kSimdgroups) {
    device float* memory = state + ulong(first) * k_dim;
    DeltaRows<columns> lower, upper;
    load_rows(memory, lower);
    load_rows(memory + kRows * k_dim, upper);
    device const float* values = v + first + row_of_lane;
    const float low = update_rows(lower, query, key, key_query, values[0], decay, rate, lane);
    const float high = update_rows(upper, query, key, key_query, values[kRows], decay, rate, lane);
    store_rows(memory, lower);
    store_rows(memory + kRows * k_dim, upper);
    if (lane / kRows == 1) {
      y[first + row_of_lane] = low;
      y[first + kRows + row_of_lane] = high;
    }
  }

  threadgroup_barrier(mem_flags::mem_device);  // all rows of y are there
  if (simd > 0) return;
  z += ulong(head) * v_dim;
  const float inverse = inverse_norm(y, v_dim, float(v_dim), eps, row);
  for (uint i = lane; i < v_dim; i += 32) y[i] = y[i] * inverse * weight[i] * silu(z[i]);
}

// By key dimension.
template [[host_name("delta_step_k64")]] kernel decltype(delta_step<2>) delta_step<2>;
template [[host_name("delta_step_k128")]] kernel decltype(delta_step<4>) delta_step<4>;
template [[host_name("delta_step_k256")]] kernel decltype(delta_step<8>) delta_step<8>;
