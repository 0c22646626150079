// Gated delta rule, several tokens at a time: matrix products replace the token-by-token updates of delta_net.
#include "chunks.h"

constant bool tiled [[function_constant(0)]];  // value heads of one key head lie k_heads apart, not together

// Per value head as delta_net: S = g S; d = beta (v - S k); S = S + d k^T; y = S q.
// Layout: token t of q, k starts at t * qk_stride, of v at t * v_stride; state in place; y overlaps no input.
// Dispatch: groups (ceil_div(v_dim, kRows), v_heads), threads (kThreads)
// Requires: tokens > 0; k_heads > 0; v_heads > 0; v_heads % k_heads == 0; v_dim > 0; v_dim % kBlock == 0;
//   qk_stride >= k_heads * tiles * kColumns; v_stride >= v_heads * v_dim
// Work: products (4 * tokens * v_heads * v_dim * tiles * kColumns)
// Numerics: f32, as delta_net to rounding, for g in [0, 1]; NaN reaches the same values as there, token by token.
template <uint tiles>
kernel void delta_net_chunkwise(
    device const float* q [[buffer(0)]],     // [(tokens - 1) * qk_stride + k_heads * tiles * kColumns]
    device const float* k [[buffer(1)]],     // [(tokens - 1) * qk_stride + k_heads * tiles * kColumns]
    device const float* v [[buffer(2)]],     // [(tokens - 1) * v_stride + v_heads * v_dim]
    device const float* g [[buffer(3)]],     // [tokens, v_heads]
    device const float* beta [[buffer(4)]],  // [tokens, v_heads]
    device float* state [[buffer(5)]],       // [v_heads, v_dim, tiles * kColumns]
    device float* y [[buffer(6)]],           // [tokens, v_heads, v_dim]
    constant uint& tokens [[buffer(7)]],
    constant uint& k_heads [[buffer(8)]],
    constant uint& v_heads [[buffer(9)]],
    constant uint& v_dim [[buffer(10)]],
    constant uint& qk_stride [[buffer(11)]],
    constant uint& v_stride [[buffer(12)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float keys[kTokens * kStride], queries[kTokens * kStride];
  threadgroup float steps[kTokens * kStride], weights[kTokens * kStride];
  threadgroup float kept[kTokens * kBlock], rates[kTokens], ends[kTokens];
  threadgroup float updates[kSimdgroups * kTokens * kBlock], scratch[kSimdgroups * kBlock * kBlock];
  const ChunkMemory memory = {keys, queries, steps, weights, kept, rates, ends, updates, scratch};
  constexpr uint kDim = tiles * kColumns;
  const uint head = tg.y;
  const uint key_head = tiled ? head % k_heads : head / (v_heads / k_heads);
  const ChunkHead own = {
      q + ulong(key_head) * kDim,
      k + ulong(key_head) * kDim,
      v + ulong(head) * v_dim,
      g + head,
      beta + head,
      state + ulong(head) * v_dim * kDim,
      y + ulong(head) * v_dim,
      tokens,
      v_dim,
      qk_stride,
      v_stride,
      v_heads,
      ulong(v_heads) * v_dim};
  delta_chunks<tiles>(own, tg.x, memory, tid, lane, simd);
}

// By key dimension.
template
    [[host_name("delta_net_chunkwise_k64")]] kernel decltype(delta_net_chunkwise<2>) delta_net_chunkwise<2>;
template
    [[host_name("delta_net_chunkwise_k128")]] kernel decltype(delta_net_chunkwise<4>) delta_net_chunkwise<4>;
template
    [[host_name("delta_net_chunkwise_k256")]] kernel decltype(delta_net_chunkwise<8>) delta_net_chunkwise<8>;
