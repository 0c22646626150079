// Rotary position embedding.
#include "turn.h"

constant bool interleaved [[function_constant(0)]];

constexpr constant uint kThreads = 64;
constexpr constant uint kHeads = 4;  // heads that share one sine and cosine

// Pairs (a, b) of each head become (a cos - b sin, b cos + a sin) * scale, angle = (position + t) * inv_freq.
// Layout: pairs (i, i + pairs), or (2i, 2i + 1) when interleaved; values after them are copied; y may be x.
// Dispatch: groups (ceil_div(dim - pairs, kThreads), ceil_div(heads, kHeads), tokens), threads (kThreads)
// Requires: tokens > 0; heads > 0; pairs > 0; 2 * pairs <= dim; position + tokens <= 4294967296
// Numerics: angle rounded once to f32, then precise sin and cos; error about 2e-7 of the pair's length.
kernel void rope(
    device const float* x [[buffer(0)]],         // [tokens, heads, dim]
    device const float* inv_freq [[buffer(1)]],  // [pairs]
    device float* y [[buffer(2)]],               // [tokens, heads, dim]
    constant uint& tokens [[buffer(3)]],
    constant uint& heads [[buffer(4)]],
    constant uint& dim [[buffer(5)]],
    constant uint& pairs [[buffer(6)]],
    constant uint& position [[buffer(7)]],
    constant float& scale [[buffer(8)]],
    uint3 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;  // a pair, or past them one value to copy
  if (i >= dim - pairs) return;

  const uint first = tg.y * kHeads;
  const uint last = min(first + kHeads, heads);
  const ulong token = ulong(tg.z) * heads;
  if (i >= pairs) {
    for (uint head = first; head < last; ++head) {
      const ulong at = (token + head) * dim + pairs + i;
      y[at] = x[at];
    }
    return;
  }

  const float2 turn = turn_of(position + tg.z, inv_freq[i], scale);
  const uint a = interleaved ? 2 * i : i;
  const uint b = interleaved ? 2 * i + 1 : i + pairs;
  for (uint head = first; head < last; ++head) {
    const ulong start = (token + head) * dim;
    const float va = x[start + a];
    const float vb = x[start + b];
    y[start + a] = va * turn.x - vb * turn.y;
    y[start + b] = vb * turn.x + va * turn.y;
  }
}
