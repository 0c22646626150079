// Gated delta rule, token by token: the state stays in registers from the first token to the last, and the next
// token is read while one is used.
#include "rule.h"

constant bool tiled [[function_constant(0)]];  // value heads of one key head lie k_heads apart, not together

constexpr constant uint kSimdgroups = 4;  // of one threadgroup
constexpr constant uint kRowsPerGroup = kRows * kSimdgroups;

// What a lane needs of a token.
template <uint columns>
struct DeltaToken {
  float query[columns];
  float key[columns];
  float value;
  float decay;
  float rate;
};

template <uint columns>
inline DeltaToken<columns> read_token(
    device const float* q,
    device const float* k,
    device const float* v,
    device const float* g,
    device const float* beta) {
  DeltaToken<columns> token;
#pragma unroll
  for (uint c = 0; c < columns; ++c) {
    token.query[c] = q[c * 32];
    token.key[c] = k[c * 32];
  }
  token.value = v[0];
  token.decay = g[0];
  token.rate = beta[0];
  return token;
}

// Per value head: S = g S; d = beta (v - S k); S = S + d k^T; y = S q, with one of k_heads for v_heads / k_heads.
// Layout: token t of q, k starts at t * qk_stride, of v at t * v_stride; state in place; y overlaps no input.
// Dispatch: groups (ceil_div(v_dim, kRowsPerGroup), v_heads), threads (32 * kSimdgroups)
// Requires: tokens > 0; k_heads > 0; v_heads > 0; v_heads % k_heads == 0; v_dim > 0; v_dim % kRows == 0;
//   qk_stride >= k_heads * columns * 32; v_stride >= v_heads * v_dim
// Work: products (4 * tokens * v_heads * v_dim * columns * 32)
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

  DeltaRows<columns> rows;
  load_rows(state, rows);
  const uint row = lane % kRows;
  DeltaToken<columns> token = read_token<columns>(q, k, v + row, g + head, beta + head);
  for (uint t = 0; t < tokens; ++t) {
    const DeltaToken<columns> now = token;
    const ulong next = min(t + 1, tokens - 1);
    token = read_token<columns>(
        q + next * qk_stride, k + next * qk_stride, v + next * v_stride + row, g + next * v_heads + head,
        beta + next * v_heads + head);
    const float key_query = key_times_query<columns>(now.key, now.query);
    const float out = update_rows(rows, now.query, now.key, key_query, now.value, now.decay, now.rate, lane);
    if (lane / kRows == 1) y[ulong(t) * v_heads * v_dim + row] = out;
  }
  store_rows(state, rows);
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
