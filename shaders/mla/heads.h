// Some heads of latent attention, by one simdgroup: they share each row that it reads.
#pragma once

#include "../attention/online.h"
#include "sizes.h"

// A lane's share of the rows of some keys.
template <uint keys>
struct LatentBatch {
  Share<kMaxRank> latents[keys];
  Share<kMaxRope> rope_keys[keys];
};

template <uint heads>
struct LatentHeads {
  enum : uint { kBatch = Online<kMaxRank, heads>::kBatch };

  Share<kMaxRank> query[heads];
  Share<kMaxRope> turned[heads];
  Online<kMaxRank, heads> online;

  // Queries q [count, rank] and q_rope [count, rope], at least one; the others repeat the last one.
  void load(device const float* q, device const float* q_rope, uint rank, uint rope, uint count, uint lane) {
    online.start();
#pragma unroll
    for (uint h = 0; h < heads; ++h) {
      query[h].load(q + ulong(min(h, count - 1)) * rank, rank, lane);
      turned[h].load(q_rope + ulong(min(h, count - 1)) * rope, rope, lane);
    }
  }

  // Adds keys, of which the first `seen` exist.
  void add(thread const LatentBatch<kBatch>& keys, uint seen, float scale, uint lane) {
    float dots[heads * kBatch];
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
#pragma unroll
      for (uint h = 0; h < heads; ++h)
        dots[h * kBatch + b] = query[h].dot(keys.latents[b]) + turned[h].dot(keys.rope_keys[b]);
    }
    const float score = scale * sums_by_lane<heads * kBatch>(dots, lane);
    const float weight = online.weigh(score, online.key_of(lane) < seen);
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      if (b < seen) online.add(b, keys.latents[b], weight, heads);
    }
  }

  // Writes the sums of the first `count` heads, which are `blocks` blocks apart.
  void store(device float* o, device float* m, device float* l, uint blocks, uint rank, uint count, uint lane)
      const {
    const float total = online.over_keys(online.total);
#pragma unroll
    for (uint h = 0; h < heads; ++h) {
      const float top = simd_shuffle(online.top, ushort(h * kBatch));
      const float all = simd_shuffle(total, ushort(h * kBatch));
      if (h >= count) continue;
      online.sum[h].store(o + ulong(h) * blocks * rank, rank, lane);
      if (lane == 0) {
        m[ulong(h) * blocks] = top;
        l[ulong(h) * blocks] = all;
      }
    }
  }
};
