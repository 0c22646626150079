// The largest logits of each row, first half.
#include "select.h"

constexpr constant uint kThreads = 256;

// Threads take turns with the values.
struct Strided {
  uint tid;

  uint at(uint i) const { return tid + i * kThreads; }
};

// For each row and each of `groups` parts of it: the first k values by rank (the larger first, NaN before all,
// equal ones by token) with their tokens, -inf and -1 where there are fewer; m, the largest; l = sum e^(x - m).
// Layout: rows contiguous, parts of ceil_div(n, groups) values; the k values of a part in no order.
// Dispatch: groups (groups, rows), threads (kThreads)
// Requires: rows > 0; groups > 0; n > 0; n <= groups * kThreads * kPerThread; k > 0; k <= kThreads / 4
// Numerics: values exact, l f32; l = 0 where all values are -inf, NaN where one is NaN or +inf.
kernel void top_logits_partials(
    device const float* x [[buffer(0)]],  // [rows, n]
    device float* values [[buffer(1)]],   // [rows, groups, k]
    device int* tokens [[buffer(2)]],     // [rows, groups, k]
    device float* m [[buffer(3)]],        // [rows, groups]
    device float* l [[buffer(4)]],        // [rows, groups]
    constant uint& rows [[buffer(5)]],
    constant uint& groups [[buffer(6)]],
    constant uint& n [[buffer(7)]],
    constant uint& k [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint partials[2 * kMostSimds];
  Reducer group = {lane, simd, kThreads / 32, partials, 0};
  const uint span = (n + groups - 1) / groups;
  const uint begin = min(tg.x * span, n);
  const uint count = min(span, n - begin);
  x += ulong(tg.y) * n + begin;

  uint keys[kPerThread];
  const Strided index = {tid};
  uint largest = 0;
#pragma unroll
  for (uint i = 0; i < kPerThread; ++i) {
    keys[i] = index.at(i) < count ? order_key(x[index.at(i)]) : 0;
    largest = max(largest, keys[i]);
  }
  largest = group.largest(largest);
  const float top = largest == 0 ? -INFINITY : value_of(largest);
  float total = 0.0f;
  for (uint i = tid; i < count; i += kThreads) total += weight_of(x[i], top);
  total = group.sum(total);

  const uint kept = min(k, count);
  const Cut cut = cut_after(keys, index, kept, kept, count, largest, group);
  const ulong part = ulong(tg.y) * groups + tg.x;
  values += part * k;
  tokens += part * k;
  uint all;
  uint place = group.sum_before(count_kept(keys, index, cut), all);
  for (uint i = tid; i < count; i += kThreads) {
    if (cut.keeps(order_key(x[i]), i)) {
      values[place] = x[i];
      tokens[place] = int(begin + i);
      ++place;
    }
  }
  if (tid >= kept && tid < k) {
    values[tid] = -INFINITY;
    tokens[tid] = -1;
  }
  if (tid == 0) {
    m[part] = top;
    l[part] = total;
  }
}
