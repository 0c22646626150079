// Sums over the threads that share one row.
#pragma once

#include <metal_stdlib>
using namespace metal;

// One simdgroup shares the row: thread `index` of `count`.
struct SimdgroupRow {
  uint index;  // lane
  uint count;  // 32

  // Sum of `value` over the simdgroup; every lane gets the same bits.
  float sum(float value) const { return simd_sum(value); }
};

// A whole threadgroup shares the row: thread `index` of `count`, a multiple of 32.
struct ThreadgroupRow {
  uint index;
  uint count;
  uint lane;
  uint simd;
  threadgroup float* partials;  // [count / 32]

  // Sum of `value` over the threadgroup; every thread gets the same bits. All threads must call it; the
  // second barrier lets them call it again at once.
  float sum(float value) const {
    const float own = simd_sum(value);
    if (lane == 0) partials[simd] = own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = simd_sum(lane < count / 32 ? partials[lane] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return total;
  }
};
