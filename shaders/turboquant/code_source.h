// A key head of a compressed cache, with its exact rows, as tiles of attention read it.
#pragma once

#include "../attention/tiled.h"
#include "ring.h"

constant uint key_bits [[function_constant(0)]];
constant uint value_bits [[function_constant(1)]];
constant bool has_means [[function_constant(2)]];
constant bool has_own [[function_constant(3)]];
constant bool has_recent [[function_constant(5)]];

// The keys or the values of one key head of a sequence.
struct TurboSource {
  device const uint* packed;  // [capacity, words]
  device const half* scales;  // [capacity]
  device const half* means;   // [capacity], with has_means
  device const float* ones;   // [dim], with has_means
  device const float* own;    // row i at i * own_stride, with has_own
  device const half* recent;  // [recent_rows, dim], with has_recent
  ulong own_stride;
  uint bits;
  uint context;
  uint exact;  // keys from here on, at most context, have exact rows
  uint recent_rows;
  Ring ring;
  uint dim;

  // Of a key from `exact` on.
  float4 exact_four(uint key, uint column) const {
    if (has_own && key >= context)
      return *(device const float4*)(own + (key - context) * own_stride + column);
    return float4(*(device const half4*)(recent + ulong(key % recent_rows) * dim + column));
  }

  float4 four(uint key, uint column) const {
    if ((has_own || has_recent) && key >= exact) return exact_four(key, column);
    const uint row = ring.row(key);
    const uint run = code_run(packed + ulong(row) * row_words(dim, bits), column, 4, bits);
    const float factor = float(scales[row]);
    float4 x;
    for (uint c = 0; c < 4; ++c) x[c] = centroid(code_at(run, c, bits), bits) * factor;
    if (has_means) {
      for (uint c = 0; c < 4; ++c) x[c] = fma(float(means[row]), ones[column + c], x[c]);
    }
    return x;
  }
};
