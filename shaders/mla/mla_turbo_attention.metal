// Latent attention for prefill over a compressed cache: a chunk of queries over the rows encoded before it, then
// over its own rows, which are exact.
#include "../attention/tiled.h"
#include "compressed.h"

constexpr constant uint kRows = 8;  // (query, head) pairs of a threadgroup
constexpr constant uint kQueryStride = kMaxRank + kMaxRope + kPad;

// Rows latent | rope key, or with columns = rank the latents alone.
struct CompressedSource {
  CompressedLatents rows;
  uint columns;

  bool load(KeyRange keys, uint column, uint tid, threadgroup float* tile) const {
    bool finite = true;
    for (uint i = tid; i < kKeys * kChunk / 4; i += kThreads) {
      const uint key = i / (kChunk / 4);
      const uint at = i % (kChunk / 4) * 4;
      float4 x = 0;
      if (keys.first + key < keys.end && column + at < columns) x = rows.four(keys.first + key, column + at);
      for (uint c = 0; c < 4; ++c) tile[key * kChunkStride + at + c] = x[c];
      finite = finite && all(isfinite(x));
    }
    return finite;
  }
};

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
    device const float* q [[buffer(0)]],         // [tokens, heads, rank]
    device const float* q_rope [[buffer(1)]],    // [tokens, heads, rope]
    device const uint* packed [[buffer(2)]],     // [capacity, ceil_div(rank * bits, 32)]
    device const half* scales [[buffer(3)]],     // [capacity]
    device const half* rope_keys [[buffer(4)]],  // [capacity, rope]
    device const float* own [[buffer(5), function_constant(has_own)]],               // [tokens, rank]
    device const float* own_ropes [[buffer(6), function_constant(has_own)]],         // [tokens, rope]
    device const half* recent_latents [[buffer(7), function_constant(has_recent)]],  // [recent, rank]
    device const uint* recent_keys [[buffer(8), function_constant(has_recent)]],     // [recent]
    device float* y [[buffer(9)]],                                                   // [tokens, heads, rank]
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
  threadgroup float queries[kRows * kQueryStride];
  threadgroup float tile[kKeys * kChunkStride];
  threadgroup float weights[kRows * kWeightStride];
  threadgroup float factors[kRows * kBlock];
  threadgroup float scratch[kSimdgroups * kBlock * kBlock];
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
  const CompressedSource keys = {rows, rank + rope};
  const CompressedSource values = {rows, rank};
  load_queries<kRows>(q, rank, at_work, queries, kQueryStride, 0, tid);
  load_queries<kRows>(q_rope, rope, at_work, queries, kQueryStride, rank, tid);
  const Mask mask = make_mask(tokens, has_own ? context + tokens : context, 0, true);
  attend_tiles<kMaxRank, kRows, kMaxRank + kMaxRope>(
      keys, values, at_work, mask, rank + rope, rank, scale, 0.0f, nullptr, y,
      TileMemory{queries, tile, weights, factors, scratch, finite}, tid, lane, simd);
}
