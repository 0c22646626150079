// The compressed cache of latent attention. A latent is rotated and kept as codes and a norm, the rotary key
// beside it as it is. The kernels work on rotated latents, from the queries to the mix.
#pragma once

#include <metal_stdlib>
using namespace metal;

#include "../turboquant/codec.h"

constant uint bits [[function_constant(0)]];
constant bool has_own [[function_constant(1)]];

constexpr constant uint kMaxRank = 512;
constexpr constant uint kMaxRope = 64;

// Rows latent | rope key. Key j < context is row j of the cache; with has_own the keys from `context` on are
// rows of a chunk that is not encoded yet.
struct CompressedLatents {
  device const uint* packed;      // [capacity, words]
  device const float* norms;      // [capacity]
  device const half* rope_keys;   // [capacity, rope]
  device const float* own;        // [tokens, rank], with has_own
  device const float* own_ropes;  // [tokens, rope], with has_own
  uint context;
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
    const uint run = code_run(packed + ulong(key) * row_words(rank, bits), column, 4, bits);
    const float factor = norms[key] * (1.0f / sqrt(float(rank)));
    constant float* table = centroids(bits);
    float4 x;
    for (uint c = 0; c < 4; ++c) x[c] = table[code_at(run, c, bits)] * factor;
    return x;
  }
};
