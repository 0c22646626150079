// Adds the results of some buckets to their tokens.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 256;

// y[t] += sum over the k choices of weights[t, j] * rows[inverse[t, j] - first]; see moe_buckets.
// Layout: rows holds the rows from `first` on of what is sorted by expert; choices outside of it add nothing.
// Dispatch: groups (ceil_div(dim, kThreads), tokens), threads (kThreads)
// Requires: tokens > 0; k > 0; dim > 0; row_count > 0
// Numerics: f32 fma in the order of k, onto y; a token has its own threads, so the bits are always the same.
kernel void bucket_accumulate(
    device const float* rows [[buffer(0)]],     // [row_count, dim]
    device const int* inverse [[buffer(1)]],    // [tokens, k]
    device const float* weights [[buffer(2)]],  // [tokens, k]
    device float* y [[buffer(3)]],              // [tokens, dim]
    constant uint& tokens [[buffer(4)]],
    constant uint& k [[buffer(5)]],
    constant uint& dim [[buffer(6)]],
    constant uint& first [[buffer(7)]],
    constant uint& row_count [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint i = tg.x * kThreads + tid;
  if (i >= dim) return;

  inverse += ulong(tg.y) * k;
  weights += ulong(tg.y) * k;
  const ulong at = ulong(tg.y) * dim + i;
  float sum = y[at];
  for (uint choice = 0; choice < k; ++choice) {
    const uint row = uint(inverse[choice]) - first;  // one in front of `first` is a large one
    if (inverse[choice] >= 0 && row < row_count) sum = fma(weights[choice], rows[ulong(row) * dim + i], sum);
  }
  y[at] = sum;
}
