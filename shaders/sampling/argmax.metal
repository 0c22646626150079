// The most likely token of each row of logits.
#include "../common/order.h"

constexpr constant uint kThreads = 1024;
constexpr constant uint kAtOnce = 8;  // values that a thread asks for together

// y[r] = index of the largest value of row r, the lowest among equals; the first NaN of a row that has one.
// Layout: rows contiguous.
// Dispatch: groups (rows), threads (kThreads)
// Requires: rows > 0; n > 0; n < 2147483648
// Numerics: integer compares, the same on every device; -0 equals 0.
kernel void argmax(
    device const float* x [[buffer(0)]],  // [rows, n]
    device int* y [[buffer(1)]],          // [rows]
    constant uint& rows [[buffer(2)]],
    constant uint& n [[buffer(3)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint keys[kThreads / 32];
  threadgroup uint indices[kThreads / 32];
  x += ulong(tg) * n;
  Ranked best = {0, kNoIndex};
  for (uint first = tid; first < n; first += kAtOnce * kThreads) {
    uint found[kAtOnce];
#pragma unroll
    for (uint i = 0; i < kAtOnce; ++i) {
      const uint index = first + i * kThreads;
      found[i] = index < n ? order_key(x[index]) : 0;
    }
#pragma unroll
    for (uint i = 0; i < kAtOnce; ++i)
      if (found[i] > best.key) best = Ranked{found[i], first + i * kThreads};
  }
  best = simd_best(best);
  if (lane == 0) {
    keys[simd] = best.key;
    indices[simd] = best.index;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  if (simd == 0) {
    best = simd_best(Ranked{keys[lane], indices[lane]});
    if (lane == 0) y[tg] = int(best.index);
  }
}
