// Latent attention for prefill over a compressed cache: a chunk of queries over the rows encoded before it, then
// over its own rows, which are exact.
#include "compressed.h"
#include "latent_queries.h"

// y = sum_j p_j latent_j over the keys a query sees, causally; p is the softmax of
// scale * (q . latent + q_rope . rope_key). Latents are rotated, from q to y.
// Layout: keys and own rows as mla_turbo_partials has them.
// Dispatch: groups (ceil_div(tokens * heads, kRows)), threads (kThreads)
// Requires: bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8; tokens > 0; context <= capacity;
//   !has_recent || (0 < recent && recent <= kMaxRecent);
//   heads > 0; rank > 0; rank % 16 == 0; rank <= kMaxRank; rope > 0; rope % 8 == 0; rope <= kMaxRope;
//   context + tokens <= 2147483647; tokens * heads <= 2147483647
// Work: products (tokens * heads * (context + tokens) * (2 * rank + rope)),
//   bytes (context * (rank * bits / 8 + rope * 2))
// Numerics: f32, online softmax; no visible key gives 0. NaN and inf reach only queries that see them.
kernel void mla_turbo_attention(
    device const float* q [[buffer(0)]],         // [tokens, heads, rank] aligned 16
    device const float* q_rope [[buffer(1)]],    // [tokens, heads, rope]
    device const uint* packed [[buffer(2)]],     // [capacity, ceil_div(rank * bits, 32)]
    device const half* scales [[buffer(3)]],     // [capacity]
    device const half* rope_keys [[buffer(4)]],  // [capacity, rope] aligned 16
    device const float* own [[buffer(5), function_constant(has_own)]],        // [tokens, rank] aligned 16
    device const float* own_ropes [[buffer(6), function_constant(has_own)]],  // [tokens, rope] aligned 16
    device const half* recent_latents
    [[buffer(7), function_constant(has_recent)]],                                 // [recent, rank] aligned 16
    device const uint* recent_keys [[buffer(8), function_constant(has_recent)]],  // [recent]
    device float* y [[buffer(9)]],                                                // [tokens, heads, rank]
    constant uint& tokens [[buffer(10)]],
    constant uint& context [[buffer(11)]],
    constant uint& capacity [[buffer(12)]],
    constant uint& recent [[buffer(13)]],
    constant uint& heads [[buffer(14)]],
    constant uint& rank [[buffer(15)]],
    constant uint& rope [[buffer(16)]],
    constant float& scale [[buffer(17)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 tile[kTileFloats / 4];
  threadgroup bool finite[kSimdgroups];

  const uint first = tg * kRows;
  const TileRows at_work = {first, min(kRows, tokens * heads - first), heads, heads, 0};
  CompressedLatents rows = {packed,  scales,  rope_keys, nullptr, nullptr, nullptr,
                            context, context, 0,         rank,    rope};
  if (has_recent) {
    rows.recent = recent_latents;
    rows.exact = first_recent(recent_keys, recent, context, lane);
    rows.recent_rows = recent;
  }
  if (has_own) {
    rows.own = own;
    rows.own_ropes = own_ropes;
  }
  const Mask mask = make_mask(tokens, has_own ? context + tokens : context, 0, true);
  attend_tiles<float, kMaxRank, kRows, kMaxRank + kMaxRope>(
      LatentQueries{q, q_rope, rank, rope}, rows, rows, at_work, mask, rank + rope, rank, scale, 0.0f,
      nullptr, y, TileMemory{tile, finite}, tid, lane, simd);
}
