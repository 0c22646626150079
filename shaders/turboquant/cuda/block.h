// attend_codes for NVIDIA's matrix units: the warps of a threadgroup share the keys of a block, and join their sums in the
// end.
#include "coded_heads.h"

constexpr uint kFewestKeys = 128;  // of a block, except the last one that has any

template <uint max_dim, uint shared>
constexpr uint block_floats() {
  return max_dim > 256 ? online_floats<max_dim, shared>() : BlockMemory<max_dim>::kFloats;
}

template <uint max_dim, uint shared, typename T>
inline void attend_codes(
    const T* q,
    const TurboCache& cache,
    uint from,
    uint to,
    uint group,
    uint part,
    BlockSums results,
    float* memory,
    uint simd,
    uint lane) {
  if constexpr (max_dim > 256) {
    attend_codes_online<max_dim, shared>(q, cache, from, to, group, part, results, memory, simd, lane);
  } else {
    const uint first = part * kUnitHeads;
    if (first >= group) return;  // a threadgroup before this one has these heads
    const auto is_wide = [&](const uint* packed, uint bits) {
      return reinterpret_cast<ulong>(packed) % 16 == 0 && row_words(cache.dim, bits) % 4 == 0;
    };
    const bool wide = cache.dim == max_dim && is_wide(cache.keys.packed, kKeyBits) &&
                      is_wide(cache.values.packed, kValueBits);
    const BlockMemory<max_dim> block = {memory};
    const uint coded = clamp(cache.exact, from, to);    // the first key that is not compressed
    const uint chunk = clamp(cache.context, from, to);  // the first key of the chunk itself
    const uint count = min(kUnitHeads, group - first);
    uint lane_bytes = lane * 4;
    hold(lane_bytes);
    CodedHeads<max_dim> heads = {
        cache,
        block,
        coded,
        count,
        lane,
        lane / 4,
        lane % 4,
        {block.key_table(), lane_bytes},
        {block.value_table(), lane_bytes}};
    heads.top = -INFINITY;
    heads.unit = power_above(0.0f);
    constexpr uint kStride = kOnlineSimdgroups * kWarpKeys;
    uint at = from + simd * kWarpKeys;
    if (at < coded) wide ? heads.template load<true>(at) : heads.template load<false>(at);
    const T* own_q = q + ulong(first) * cache.dim;
    heads.stage(own_q, simd);
    if (wide)
      for (; at < coded; at += kStride) heads.template add_codes<true>(at, at + kStride);
    else
      for (; at < coded; at += kStride) heads.template add_codes<false>(at, at + kStride);

    // The last warps begin with the other keys, a warp for each kind.
    if (bool(has_recent)) {
      heads.to = chunk;
      for (at = coded + (kOnlineSimdgroups - 1 - simd) * kWarpKeys; at < chunk; at += kStride)
        heads.add_recent(at);
    }
    if (bool(has_own)) {
      for (at = chunk + ((kOnlineSimdgroups - 1 - simd) ^ 1); at < to; at += kOnlineSimdgroups) {
        heads.to = at + 1;
        heads.add_own(at, own_q);
      }
    }
    const ulong place = ulong(first) * results.blocks;
    heads.join({results.o + place * cache.dim, results.m + place, results.l + place, results.blocks}, simd);
  }
}
