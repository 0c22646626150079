// Latent attention for decode over a compressed cache, first half: the keys of each query split over threadgroups,
// merged by turbo_merge. A few rows at a time are unpacked into threadgroup memory, once for all heads at work.
#include "compressed.h"
#include "latent_block.h"

struct UnpackedRows {
  static constexpr constant bool kAhead = false;  // unpacking waits for the codes

  CompressedLatents rows;

  float4 four(uint key, uint column) const { return rows.four(key, column); }
};

// The keys that a query sees, causally, are cut in order into blocks. Of each, m is the largest score
// scale * (q . latent + q_rope . rope_key), l = sum e^(score - m), o = sum e^(score - m) * latent; no keys:
// m = -inf, l = o = 0. Latents are rotated, from q to o; all heads read the same rows.
// Layout: key j < context in row j, or its latent in exact row j % recent if recent_keys has it and all after it;
//   with has_own key context + i is own row i and query t stands at key context + t, else the last one at the last.
// Dispatch: groups (ceil_div(heads, kHeads), blocks, tokens), threads (kThreads)
// Requires: bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8; tokens > 0; context <= capacity;
//   !has_recent || (0 < recent && recent <= kMaxRecent);
//   heads > 0; rank > 0; rank % 16 == 0; rank <= kMaxRank; rope > 0; rope % 8 == 0; rope <= kMaxRope;
//   context + tokens <= 2147483647; 0 < blocks; blocks <= 65535
// Work: products (tokens * heads * (context + tokens) * (2 * rank + rope)),
//   bytes (context * (rank * bits / 8 + rope * 2))
// Numerics: f32, online softmax with some keys at a time. NaN and inf reach only queries that see them.
kernel void mla_turbo_partials(
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
    device float* o [[buffer(9)]],   // [tokens, heads, blocks, rank]
    device float* m [[buffer(10)]],  // [tokens, heads, blocks]
    device float* l [[buffer(11)]],  // [tokens, heads, blocks]
    constant uint& tokens [[buffer(12)]],
    constant uint& context [[buffer(13)]],
    constant uint& capacity [[buffer(14)]],
    constant uint& recent [[buffer(15)]],
    constant uint& heads [[buffer(16)]],
    constant uint& rank [[buffer(17)]],
    constant uint& rope [[buffer(18)]],
    constant uint& blocks [[buffer(19)]],
    constant float& scale [[buffer(20)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 unpacked[row_fours<float>()];
  threadgroup float partials[partial_floats<float>()];
  threadgroup float4 weights[weight_fours<float>()];

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
  const uint all = has_own ? context + tokens : context;
  const LatentBlock block = latent_block(tg, make_mask(tokens, all, 0, true).end(tg.z), heads, blocks);
  attend_latents(
      UnpackedRows{rows}, block, q, q_rope, o, m, l, rank, rope, blocks, scale,
      LatentMemory<float>{unpacked, partials, weights}, lane, simd);
}
