// The queries of latent attention for prefill.
#pragma once

#include "../attention/tiled.h"
#include "sizes.h"

constexpr constant uint kRows = 8;  // (query, head) pairs of a threadgroup

// Rows q | q_rope, of q [tokens, heads, rank] and q_rope [tokens, heads, rope].
struct LatentQueries {
  device const float* q;
  device const float* q_rope;
  uint rank;
  uint rope;

  float2 two(ulong place, uint column) const {
    device const float* row = q + place * rank + column;
    if (column >= rank) row = q_rope + place * rope + column - rank;
    return float2(row[0], row[1]);
  }
};
