// One token through a delta net: norms of query and key, gates, the gated delta rule and the output norm.
#include "../norm/inverse_norm.h"
#include "gates.h"
#include "rule.h"

constant bool tiled [[function_constant(0)]];  // value heads of one key head lie k_heads apart, not together

constexpr constant uint kSimdgroups = 16;  // of one threadgroup
constexpr constant uint kThreads = 32 * kSimdgroups;
constexpr constant uint kOwnRows = 2 * kRows;  // state rows that a simdgroup reads at once

// qk_norm, decay_beta, delta_net and gated_rms_norm of one token, one after the other.
// Layout: mixed has all queries, keys and values, head by head; state in place; y overlaps no input.
// Dispatch: groups (v_heads), threads (kThreads)
// Requires: k_heads > 0; v_heads > 0; v_heads % k_heads == 0; v_dim > 0; v_dim % kOwnRows == 0; eps >= 0; qk_eps >= 0
// Numerics: as these kernels; NaN of a query or of z reaches y only, other NaN its head's state.
template <uint columns>
[[max_total_threads_per_threadgroup(kThreads)]] kernel void delta_step(
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
  threadgroup float results[kThreads];  // before the norm, where a thread has one at most
  const uint k_dim = columns * 32;
  const uint key_head = tiled ? head % k_heads : head / (v_heads / k_heads);
  device const float* q = mixed + ulong(key_head) * k_dim;
  device const float* k = q + ulong(k_heads) * k_dim;
  device const float* v = mixed + 2 * ulong(k_heads) * k_dim + ulong(head) * v_dim;
  state += ulong(head) * v_dim * k_dim + lane;
  y += ulong(head) * v_dim;

  // What is in memory is asked for first.
  const uint own = simd * kOwnRows;
  const uint row_of_lane = lane % kRows;
  DeltaRows<columns> lower, upper;
  float2 value;
  if (own < v_dim) {
    load_rows(state + ulong(own) * k_dim, lower);
    load_rows(state + ulong(own + kRows) * k_dim, upper);
    value = float2(v[own + row_of_lane], v[own + kRows + row_of_lane]);
  }
  z += ulong(head) * v_dim;
  const uint tid = simd * 32 + lane;
  const bool is_held = v_dim <= kThreads;
  float own_weight = 0.0f, own_z = 0.0f;
  if (is_held && tid < v_dim) {
    own_weight = weight[tid];
    own_z = z[tid];
  }
  float query[columns];
  float key[columns];
  float2 squares = 0.0f;
#pragma unroll
  for (uint c = 0; c < columns; ++c) {
    query[c] = q[lane + c * 32];
    key[c] = k[lane + c * 32];
    squares = float2(fma(query[c], query[c], squares.x), fma(key[c], key[c], squares.y));
  }
  const SimdgroupRow row = {lane, 32};
  const float q_scale = inverse_norm_of(squares.x, q, k_dim, 1.0f, qk_eps, row) * rsqrt(float(k_dim));
  const float k_scale = inverse_norm_of(squares.y, k, k_dim, 1.0f, qk_eps, row);
#pragma unroll
  for (uint c = 0; c < columns; ++c) {
    query[c] *= q_scale;
    key[c] *= k_scale;
  }
  const float decay = decay_of(a[head], a_log[head], dt_bias[head]);
  const float rate = sigmoid(b[head]);
  const float key_query = key_times_query<columns>(key, query);

  for (uint first = own; first < v_dim; first += kOwnRows * kSimdgroups) {
    device float* memory = state + ulong(first) * k_dim;
    if (first > own) {
      load_rows(memory, lower);
      load_rows(memory + kRows * k_dim, upper);
      value = float2(v[first + row_of_lane], v[first + kRows + row_of_lane]);
    }
    const float low = update_rows(lower, query, key, key_query, value.x, decay, rate, lane);
    const float high = update_rows(upper, query, key, key_query, value.y, decay, rate, lane);
    store_rows(memory, lower);
    store_rows(memory + kRows * k_dim, upper);
    const uint at = first + row_of_lane;
    if (lane / kRows == 1 && is_held) {
      results[at] = low;
      results[at + kRows] = high;
    } else if (lane / kRows == 1) {
      y[at] = low;
      y[at + kRows] = high;
    }
  }

  // All results are there after the barrier.
  if (is_held) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float inverse = inverse_norm((threadgroup const float*)results, v_dim, float(v_dim), eps, row);
    if (tid < v_dim) y[tid] = results[tid] * inverse * own_weight * silu(own_z);
  } else {
    threadgroup_barrier(mem_flags::mem_device);
    if (simd > 0) return;
    const float inverse = inverse_norm(y, v_dim, float(v_dim), eps, row);
    for (uint i = lane; i < v_dim; i += 32) y[i] = y[i] * inverse * weight[i] * silu(z[i]);
  }
}

// By key dimension.
template [[host_name("delta_step_k64")]] kernel decltype(delta_step<2>) delta_step<2>;
template [[host_name("delta_step_k128")]] kernel decltype(delta_step<4>) delta_step<4>;
template [[host_name("delta_step_k256")]] kernel decltype(delta_step<8>) delta_step<8>;
