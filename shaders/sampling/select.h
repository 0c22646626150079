// The largest of the values that the threads of a threadgroup hold.
#pragma once

#include "../common/order.h"

constexpr constant uint kPerThread = 16;  // values of one thread
constexpr constant uint kMostSimds = 32;

// The float of a key; of a NaN any NaN, of both zeros 0.
inline float value_of(uint key) {
  return as_type<float>(key >= 0x80000000 ? key - 0x80000000 : 0x80000000 | (0x80000000 - key));
}

// The weight of a value in a softmax whose largest value is `top`; 0 for -inf, whatever `top` is.
inline float weight_of(float value, float top) { return value == -INFINITY ? 0.0f : exp(value - top); }

// Reductions over a threadgroup of `simds` simdgroups. All threads must call them, and get the same bits. Calls
// take turns with two rows of partials, so that each needs only one barrier.
struct Reducer {
  uint lane;
  uint simd;
  uint simds;
  threadgroup uint* partials;  // [2, kMostSimds]
  uint turn;

  // Publishes one number per simdgroup; returns those of all of them, `absent` for lanes beyond.
  uint shared(uint own, uint absent) {
    threadgroup uint* row = partials + turn * kMostSimds;
    turn ^= 1;
    if (lane == 0) row[simd] = own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return lane < simds ? row[lane] : absent;
  }

  uint largest(uint value) { return simd_max(shared(simd_max(value), 0)); }
  uint smallest(uint value) { return simd_min(shared(simd_min(value), 0xffffffff)); }
  uint sum(uint value) { return simd_sum(shared(simd_sum(value), 0)); }
  float sum(float value) { return simd_sum(as_type<float>(shared(as_type<uint>(simd_sum(value)), 0))); }

  // The sum of `value` over the threads before this one, and over all.
  uint sum_before(uint value, thread uint& total) {
    const uint inside = simd_prefix_exclusive_sum(value);
    const uint others = shared(simd_sum(value), 0);
    total = simd_sum(others);
    return simd_sum(lane < simd ? others : 0) + inside;
  }
};

// Where the first of a ranking end: keys above `key` are kept, and of those equal to it indices below `end`.
struct Cut {
  uint key;
  uint end;

  bool keeps(uint other, uint index) const { return other > key || (other == key && index < end); }

  // The same for value i of a thread.
  template <typename Index>
  bool keeps(uint other, Index index, uint i) const {
    return other > key || (other == key && other != 0 && index.at(i) < end);
  }
};

inline uint count_from(thread const uint* keys, uint least) {
  uint count = 0;
#pragma unroll
  for (uint i = 0; i < kPerThread; ++i) count += keys[i] >= least;
  return count;
}

// Index has at(i), the index of a thread's i-th value; it is asked only for those that are there.
template <typename Index>
inline uint count_equal(thread const uint* keys, Index index, uint key, uint end) {
  uint count = 0;
#pragma unroll
  for (uint i = 0; i < kPerThread; ++i) {
    if (keys[i] == key) count += index.at(i) < end;
  }
  return count;
}

template <typename Index>
inline uint count_kept(thread const uint* keys, Index index, Cut cut) {
  uint count = 0;
#pragma unroll
  for (uint i = 0; i < kPerThread; ++i) count += cut.keeps(keys[i], index, i);
  return count;
}

// Returns a cut that keeps the first k values by rank, the larger key first and equal ones by index, and at most
// `most` >= k values in all. `present` >= k counts those of all threads, `high` is the largest key. Keys of a
// thread are 0 where it has no value; k is at most a quarter of the threads.
template <typename Index>
inline Cut cut_after(
    thread const uint* keys,
    Index index,
    uint k,
    uint most,
    uint present,
    uint high,
    thread Reducer& group) {
  if (present <= most) return Cut{0, 0};
  uint own = 0;
#pragma unroll
  for (uint i = 0; i < kPerThread; ++i) own = max(own, keys[i]);
  // Each four threads have a value from here on, so at least k values are.
  own = max(own, simd_shuffle_xor(own, 1));
  own = max(own, simd_shuffle_xor(own, 2));
  uint low = max(group.smallest(own), 1u);
  while (low < high) {  // the k-th key is from low to high
    const uint middle = high - (high - low) / 2;
    const uint count = group.sum(count_from(keys, middle));
    if (count >= k && count <= most) return Cut{middle - 1, 0};
    if (count > most) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  // So many values are equal that indices decide, or exactly the first k are from here on.
  const uint above = low == 0xffffffff ? 0 : group.sum(count_from(keys, low + 1));
  uint first = 0;
  uint last = kNoIndex;
  while (first < last) {  // the end of the first k - above indices of that key is from first to last
    const uint middle = first + (last - first) / 2;
    const uint count = above + group.sum(count_equal(keys, index, low, middle));
    if (count == k) return Cut{low, middle};
    if (count > k) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return Cut{low, first};
}
