// The lanes of a simdgroup, which is a warp. All lanes that exist must reach these functions together.
#pragma once

#include "metal/vec.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

inline constexpr uint kLanes = 32, kAllLanes = 0xffffffffu;

inline uint lane() {
  uint number;
  asm("mov.u32 %0, %%laneid;" : "=r"(number));
  return number;
}

// Moves a value of any size, word by word.
template <typename T>
inline T shuffle(const T& value, uint lane, uint) {
  uint words[(sizeof(T) + 3) / 4] = {};
  ::memcpy(words, &value, sizeof(T));
#pragma unroll
  for (uint& word : words) word = ::__shfl_sync(kAllLanes, word, lane);
  T result;
  ::memcpy(static_cast<void*>(&result), words, sizeof(T));
  return result;
}

// Combines groups of `count` lanes as a tree: neighbours first, then neighbouring pairs, and so on.
template <typename Combiner, uint count, typename T>
inline T combine_lanes(T value) {
#pragma unroll
  for (uint stride = 1; stride < count; stride *= 2)
    value = Combiner::apply(value, shuffle(value, lane() ^ stride, 0));
  return value;
}

struct Sum;
struct Min;
struct Max;

template <typename Combiner, typename T>
inline T reduce(const T& value, uint) {
#if __CUDA_ARCH__ >= 800
  if constexpr (is_same_v<T, uint>) {  // one instruction; the order does not matter
    if constexpr (is_same_v<Combiner, Sum>) return ::__reduce_add_sync(kAllLanes, value);
    if constexpr (is_same_v<Combiner, Min>) return ::__reduce_min_sync(kAllLanes, value);
    if constexpr (is_same_v<Combiner, Max>) return ::__reduce_max_sync(kAllLanes, value);
  }
#endif
  return combine_lanes<Combiner, kLanes>(value);
}
template <typename Combiner, typename T>
inline T quad_reduce(const T& value, uint) {
  return combine_lanes<Combiner, 4>(value);
}

// Combines the lanes below this one, in ascending order from the identity; inclusive: and this lane.
template <typename Combiner, typename T>
inline T prefix(const T& value, T identity, bool inclusive, uint) {
  if constexpr (is_same_v<T, uint> && is_same_v<Combiner, Sum>) {  // as a tree; the order does not matter
    uint sum = value;
#pragma unroll
    for (uint stride = 1; stride < kLanes; stride *= 2) {
      const uint other = shuffle(sum, lane() - stride, 0);
      if (lane() >= stride) sum += other;
    }
    return inclusive ? sum : sum - value;
  }
  const uint end = lane() + inclusive;
  T result = identity;
  for (uint i = 0; i < kLanes; ++i) {
    const T other = shuffle(value, i, 0);
    if (i < end) result = i ? Combiner::apply(result, other) : other;
  }
  return result;
}

inline uint ballot(bool value, uint) { return ::__ballot_sync(kAllLanes, value); }
inline uint active_lanes(uint) { return ::__activemask(); }

template <typename T>
inline T first_value(const T& value, uint) {
  return shuffle(value, 0, 0);
}

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
