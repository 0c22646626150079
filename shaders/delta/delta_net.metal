// Gated delta rule, token by token: the state stays in registers from the first token to the last.
#include <metal_stdlib>
using namespace metal;

constant bool tiled [[function_constant(0)]];  // value heads of one key head lie k_heads apart, not together

constexpr constant uint kRows = 4;        // state rows of one simdgroup
constexpr constant uint kSimdgroups = 4;  // of one threadgroup
constexpr constant uint kRowsPerGroup = kRows * kSimdgroups;

// Per value head: S = g S; d = beta (v - S k); S = S + d k^T; y = S q, with one of k_heads for v_heads / k_heads.
// Layout: token t of q, k starts at t * qk_stride, of v at t * v_stride; state in place; y overlaps no input.
// Dispatch: groups (ceil_div(v_dim, kRowsPerGroup), v_heads), threads (32 * kSimdgroups)
// Requires: tokens > 0; k_heads > 0; v_heads > 0; v_heads % k_heads == 0; v_dim > 0; v_dim % kRows == 0;
//   qk_stride >= k_heads * columns * 32; v_stride >= v_heads * v_dim
// Numerics: f32 fma, dot products as a tree over lanes; NaN of q reaches its y only, of k, v, g, beta the state.
template <uint columns>
kernel void delta_net(
    device const float* q [[buffer(0)]],     // [(tokens - 1) * qk_stride + k_heads * columns * 32]
    device const float* k [[buffer(1)]],     // [(tokens - 1) * qk_stride + k_heads * columns * 32]
    device const float* v [[buffer(2)]],     // [(tokens - 1) * v_stride + v_heads * v_dim]
    device const float* g [[buffer(3)]],     // [tokens, v_heads]
    device const float* beta [[buffer(4)]],  // [tokens, v_heads]
    device float* state [[buffer(5)]],       // [v_heads, v_dim, columns * 32]
    device float* y [[buffer(6)]],           // [tokens, v_heads, v_dim]
    constant uint& tokens [[buffer(7)]],
    constant uint& k_heads [[buffer(8)]],
    constant uint& v_heads [[buffer(9)]],
    constant uint& v_dim [[buffer(10)]],
    constant uint& qk_stride [[buffer(11)]],
    constant uint& v_stride [[buffer(12)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint first = tg.x * kRowsPerGroup + simd * kRows;
  const uint head = tg.y;
  if (first >= v_dim) return;

  const uint k_dim = columns * 32;
  const uint key_head = tiled ? head % k_heads : head / (v_heads / k_heads);
  q += ulong(key_head) * k_dim + lane;
  k += ulong(key_head) * k_dim + lane;
  v += ulong(head) * v_dim + first;
  y += ulong(head) * v_dim + first;
  state += (ulong(head) * v_dim + first) * k_dim + lane;

  float s[kRows][columns];
#pragma unroll
  for (uint r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint c = 0; c < columns; ++c) s[r][c] = state[r * k_dim + c * 32];
  }

  for (uint t = 0; t < tokens; ++t) {
    float query[columns];
    float key[columns];
#pragma unroll
    for (uint c = 0; c < columns; ++c) {
      query[c] = q[ulong(t) * qk_stride + c * 32];
      key[c] = k[ulong(t) * qk_stride + c * 32];
    }
    const ulong gate = ulong(t) * v_heads + head;
    const float decay = g[gate];
    const float rate = beta[gate];

    float own = 0.0f;  // lane r keeps row r
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      float predicted = 0.0f;
#pragma unroll
      for (uint c = 0; c < columns; ++c) {
        s[r][c] *= decay;
        predicted = fma(s[r][c], key[c], predicted);
      }
      const float delta = rate * (v[ulong(t) * v_stride + r] - simd_sum(predicted));
      float out = 0.0f;
#pragma unroll
      for (uint c = 0; c < columns; ++c) {
        s[r][c] = fma(delta, key[c], s[r][c]);
        out = fma(s[r][c], query[c], out);
      }
      const float total = simd_sum(out);
      if (lane == r) own = total;
    }
    if (lane < kRows) y[ulong(t) * v_heads * v_dim + lane] = own;
  }

#pragma unroll
  for (uint r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint c = 0; c < columns; ++c) state[r * k_dim + c * 32] = s[r][c];
  }
}

// By key dimension.
template [[host_name("delta_net_k32")]] kernel decltype(delta_net<1>) delta_net<1>;
template [[host_name("delta_net_k64")]] kernel decltype(delta_net<2>) delta_net<2>;
template [[host_name("delta_net_k96")]] kernel decltype(delta_net<3>) delta_net<3>;
template [[host_name("delta_net_k128")]] kernel decltype(delta_net<4>) delta_net<4>;
template [[host_name("delta_net_k160")]] kernel decltype(delta_net<5>) delta_net<5>;
template [[host_name("delta_net_k192")]] kernel decltype(delta_net<6>) delta_net<6>;
template [[host_name("delta_net_k224")]] kernel decltype(delta_net<7>) delta_net<7>;
template [[host_name("delta_net_k256")]] kernel decltype(delta_net<8>) delta_net<8>;
