// Softmax of rows.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kRows = 4;  // rows of one threadgroup, one per simdgroup

// y[r, i] = e^(x[r, i] - max(x[r])) / sum_i of the same.
// Layout: rows contiguous; y may be x.
// Dispatch: groups (ceil_div(rows, kRows)), threads (32 * kRows)
// Requires: rows > 0; dim > 0
// Numerics: f32 sums. A row with NaN or +inf, or of -inf alone, is NaN; a single -inf is 0.
kernel void softmax(
    device const float* x [[buffer(0)]],  // [rows, dim]
    device float* y [[buffer(1)]],        // [rows, dim]
    constant uint& rows [[buffer(2)]],
    constant uint& dim [[buffer(3)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint row = tg * kRows + simd;
  if (row >= rows) return;
  x += ulong(row) * dim;
  y += ulong(row) * dim;

  float top = -INFINITY;
  for (uint i = lane; i < dim; i += 32) top = max(top, x[i]);
  top = simd_max(top);
  float sum = 0.0f;
  for (uint i = lane; i < dim; i += 32) {
    const float weight = exp(x[i] - top);
    y[i] = weight;
    sum += weight;
  }
  sum = simd_sum(sum);
  for (uint i = lane; i < dim; i += 32) y[i] /= sum;
}
