// y = x W^T for a weight matrix that is not quantised: router gates and small projections.
#include "dot_row.h"

constexpr constant uint kRows = 8;    // weight rows of one threadgroup, one per simdgroup
constexpr constant uint kTokens = 4;  // tokens that share each load of a weight

// y[t, r] = sum_i weight[r, i] * x[t, i]. The arithmetic of one (t, r) does not depend on tokens or out.
// Layout: all row-major and contiguous.
// Dispatch: groups (ceil_div(out, kRows), ceil_div(tokens, kTokens)), threads (32 * kRows)
// Requires: tokens > 0; out > 0; in > 0
// Numerics: f32 fma, in / 32 terms in each lane, then a tree; NaN and inf reach only their own row or token.
template <typename W>
kernel void matmul(
    device const float* x [[buffer(0)]],   // [tokens, in]
    device const W* weight [[buffer(1)]],  // [out, in]
    device float* y [[buffer(2)]],         // [tokens, out]
    constant uint& tokens [[buffer(3)]],
    constant uint& out [[buffer(4)]],
    constant uint& in [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint r = tg.x * kRows + simd;
  if (r >= out) return;

  const uint first = tg.y * kTokens;
  device const W* row = weight + ulong(r) * in;
  x += ulong(first) * in;
  y += ulong(first) * out + r;
  switch (min(tokens - first, kTokens)) {
    case 1: dot_row<W, 1>(row, x, y, in, out, lane); break;
    case 2: dot_row<W, 2>(row, x, y, in, out, lane); break;
    case 3: dot_row<W, 3>(row, x, y, in, out, lane); break;
    default: dot_row<W, kTokens>(row, x, y, in, out, lane);
  }
}

template [[host_name("matmul_f32")]] kernel decltype(matmul<float>) matmul<float>;
template [[host_name("matmul_f16")]] kernel decltype(matmul<half>) matmul<half>;
template [[host_name("matmul_bf16")]] kernel decltype(matmul<bfloat>) matmul<bfloat>;
