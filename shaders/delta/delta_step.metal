// One token through a delta net: norms of query and key, gates, the gated delta rule and the output norm.
#include "../norm/inverse_norm.h"
#include "gates.h"

constant bool tiled [[function_constant(0)]];  // value heads of one key head lie k_heads apart, not together

constexpr constant uint kRows = 8;         // state rows of one simdgroup
constexpr constant uint kSimdgroups = 16;  // of one threadgroup

// qk_norm, decay_beta, delta_net and gated_rms_norm of one token, one after the other.
// Layout: mixed has all queries, keys and values, head by head; state in place; y overlaps no input.
// Dispatch: groups (v_heads), threads (32 * kSimdgroups)
// Requires: k_heads > 0; v_heads > 0; v_heads % k_heads == 0; v_dim > 0; v_dim % kRows == 0; eps >= 0; qk_eps >= 0
// Numerics: as these kernels; NaN of a query or of z reaches y only, other NaN its head's state.
template <uint columns>
kernel void delta_step(
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

  for (uint first = simd * kRows; first < v_dim; first += kRows * kSimdgroups) {
    device float* rows = state + ulong(first) * k_dim;
    float s[kRows][columns];
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
#pragma unroll
      for (uint c = 0; c < columns; ++c) s[r][c] = rows[r * k_dim + c * 32];
    }
    float own = 0.0f;  // lane r keeps row r
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      float predicted = 0.0f;
#pragma unroll
      for (uint c = 0; c < columns; ++c) {
        s[r][c] *= decay;
        predicted = fma(s[r][c], key[c], predicted);
      }
      const float delta = rate * (v[first + r] - simd_sum(predicted));
      float out = 0.0f;
#pragma unroll
      for (uint c = 0; c < columns; ++c) {
        s[r][c] = fma(delta, key[c], s[r][c]);
        rows[r * k_dim + c * 32] = s[r][c];
        out = fma(s[r][c], query[c], out);
      }
      const float total = simd_sum(out);
      if (lane == r) own = total;
    }
    if (lane < kRows) y[first + lane] = own;
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
