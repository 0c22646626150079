// The largest logits of each row, second half.
#include "select.h"

constexpr constant uint kListed = 128;  // values of which the rank is found

// Threads take turns with the values; each has its token beside it.
struct Listed {
  device const int* tokens;
  uint tid;
  uint threads;

  uint at(uint i) const { return uint(tokens[tid + i * threads]); }
};

// The first k values of each row by rank (the larger first, NaN before all, equal ones by token) with their
// tokens, in this order, and totals = sum e^(x - values[0]), from top_logits_partials; token -1 is no value.
// Dispatch: groups (rows), threads (min(1024, max(4 * kListed, 32 * ceil_div(groups * k, 256))))
// Requires: rows > 0; groups > 0; groups * k <= 1024 * kPerThread; k > 0; k <= kListed
// Numerics: values exact, totals f32; 0 where all values are -inf, NaN where one is NaN or +inf.
kernel void top_logits_merge(
    device const float* part_values [[buffer(0)]],  // [rows, groups, k]
    device const int* part_tokens [[buffer(1)]],    // [rows, groups, k]
    device const float* m [[buffer(2)]],            // [rows, groups]
    device const float* l [[buffer(3)]],            // [rows, groups]
    device float* values [[buffer(4)]],             // [rows, k]
    device int* tokens [[buffer(5)]],               // [rows, k]
    device float* totals [[buffer(6)]],             // [rows]
    constant uint& rows [[buffer(7)]],
    constant uint& groups [[buffer(8)]],
    constant uint& k [[buffer(9)]],
    uint tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint partials[2 * kMostSimds];
  threadgroup uint best_keys[kListed];
  threadgroup uint best_tokens[kListed];
  threadgroup float best_values[kListed];
  Reducer group = {lane, simd, threads / 32, partials, 0};
  const uint count = groups * k;
  part_values += ulong(tg) * count;
  part_tokens += ulong(tg) * count;
  m += ulong(tg) * groups;
  l += ulong(tg) * groups;

  uint keys[kPerThread];
  const Listed index = {part_tokens, tid, threads};
  uint present = 0;
  uint largest = 0;
#pragma unroll
  for (uint i = 0; i < kPerThread; ++i) {
    const uint at = tid + i * threads;
    const int token = at < count ? part_tokens[at] : -1;
    keys[i] = token >= 0 ? order_key(part_values[at]) : 0;
    largest = max(largest, keys[i]);
    present += token >= 0;
  }
  present = group.sum(present);
  largest = group.largest(largest);
  const uint kept = min(k, present);
  const Cut cut = cut_after(keys, index, kept, kListed, present, largest, group);
  uint listed;
  uint place = group.sum_before(count_kept(keys, index, cut), listed);
  for (uint i = tid; i < count; i += threads) {
    const int token = part_tokens[i];
    const uint key = token >= 0 ? order_key(part_values[i]) : 0;
    if (key != 0 && cut.keeps(key, uint(token))) {
      best_keys[place] = key;
      best_tokens[place] = uint(token);
      best_values[place] = part_values[i];
      ++place;
    }
  }

  const float top = largest == 0 ? -INFINITY : value_of(largest);
  float total = 0.0f;
  for (uint part = tid; part < groups; part += threads) {
    if (l[part] != 0.0f) total = fma(weight_of(m[part], top), l[part], total);
  }
  total = group.sum(total);  // its barrier makes the best ones visible, too
  if (tid == 0) totals[tg] = total;

  values += ulong(tg) * k;
  tokens += ulong(tg) * k;
  const uint own = tid / 4;  // four threads find the rank of a value
  uint rank = 0;
  if (own < listed) {
    const Cut place_of_own = {best_keys[own], best_tokens[own]};
    for (uint i = tid % 4; i < listed; i += 4) rank += place_of_own.keeps(best_keys[i], best_tokens[i]);
  }
  rank += simd_shuffle_xor(rank, 1);
  rank += simd_shuffle_xor(rank, 2);
  if (tid % 4 == 0 && own < listed && rank < k) {
    values[rank] = best_values[own];
    tokens[rank] = int(best_tokens[own]);
  }
  if (tid >= kept && tid < k) {
    values[tid] = -INFINITY;
    tokens[tid] = -1;
  }
}
