// The compressed cache of latent attention. A latent is rotated and kept as codes and a scale, the rotary key
// beside it as it is. The kernels work on rotated latents, from the queries to the mix.
#pragma once

#include "../turboquant/codec.h"
#include "sizes.h"

constant uint bits [[function_constant(0)]];
constant bool has_own [[function_constant(1)]];
constant bool has_recent [[function_constant(2)]];

// Rows latent | rope key. Key j < context is row j of the cache, its latent row j % recent_rows of the exact ones
// from `exact` on; with has_own the keys from `context` on are rows of a chunk that is not encoded yet.
struct CompressedLatents {
  device const uint* packed;      // [capacity, words]
  device const half* scales;      // [capacity]
  device const half* rope_keys;   // [capacity, rope]
  device const float* own;        // [tokens, rank], with has_own
  device const float* own_ropes;  // [tokens, rope], with has_own
  device const half* recent;      // [recent_rows, rank], with has_recent
  uint context;
  uint exact;  // at most context
  uint recent_rows;
  uint rank;
  uint rope;

  // Columns [column, column + 4) of the row of a key.
  float4 four(uint key, uint column) const {
    const bool turns = column >= rank;
    if (has_own && key >= context) {
      const ulong row = key - context;
      device const float* source = turns ? own_ropes + row * rope + column - rank : own + row * rank + column;
      return *(device const float4*)source;
    }
    if (turns) return float4(*(device const half4*)(rope_keys + ulong(key) * rope + column - rank));
    if (has_recent && key >= exact)
      return float4(*(device const half4*)(recent + ulong(key % recent_rows) * rank + column));
    const uint run = code_run(packed + ulong(key) * row_words(rank, bits), column, 4, bits);
    const float factor = float(scales[key]);
    float4 x;
#pragma unroll
    for (uint c = 0; c < 4; ++c) x[c] = centroid(code_at(run, c, bits), bits) * factor;
    return x;
  }
};
