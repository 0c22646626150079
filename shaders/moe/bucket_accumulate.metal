// Adds the results of a bucket to the tokens that they belong to.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kThreads = 64;

// y[owners[i]] += weights[i] * rows[i], for i = 0, 1, ...; a row whose owner is no token adds nothing.
// Dispatch: groups (ceil_div(dim, kThreads)), threads (kThreads)
// Requires: tokens > 0; count > 0; dim > 0
// Numerics: f32 fma in the order of rows: a thread has a column, so a token that owns several rows is added to
//   in that order, always with the same bits.
kernel void bucket_accumulate(
    device const float* rows [[buffer(0)]],     // [count, dim]
    device const int* owners [[buffer(1)]],     // [count]
    device const float* weights [[buffer(2)]],  // [count]
    device float* y [[buffer(3)]],              // [tokens, dim]
    constant uint& tokens [[buffer(4)]],
    constant uint& count [[buffer(5)]],
    constant uint& dim [[buffer(6)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]]) {
  const uint column = tg * kThreads + tid;
  if (column >= dim) return;
  for (uint i = 0; i < count; ++i) {
    const uint token = uint(owners[i]);  // a negative one is a large one
    if (token >= tokens) continue;
    const ulong at = ulong(token) * dim + column;
    y[at] = fma(weights[i], rows[ulong(i) * dim + column], y[at]);
  }
}
