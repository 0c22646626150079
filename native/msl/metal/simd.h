// Reductions, prefix sums and votes over the active lanes of a simdgroup.
#pragma once

#include "metal/vector_math.h"
#include "pyturbo/simt.h"

// Exchanged values are in the executor's memory, which is not checked.
#define PYTURBO_LANES __attribute__((no_sanitize_thread)) inline

namespace metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

using pyturbo::simt::Exchange;
inline constexpr uint kLanes = pyturbo::kSimdWidth;

template <typename T>
PYTURBO_LANES Exchange& publish(const T& value, uint site) {
  static_assert(sizeof(T) <= pyturbo::simt::kExchangeBytes);
  return pyturbo::simt::exchange(&value, sizeof(T), site);
}

// Returns the value of `lane`. That of an inactive lane is undefined in Metal; here all bits are set, a NaN.
template <typename T>
PYTURBO_LANES T peer(const Exchange& exchange, uint lane) {
  T value;
  if (lane < kLanes && (exchange.active >> lane & 1u))
    __builtin_memcpy(static_cast<void*>(&value), exchange.values[lane], sizeof(T));
  else
    __builtin_memset(static_cast<void*>(&value), 0xff, sizeof(T));
  return value;
}

#define PYTURBO_COMBINER(Name, expression)   \
  struct Name {                              \
    template <typename T>                    \
    static T apply(const T& a, const T& b) { \
      return T(expression);                  \
    }                                        \
  };
PYTURBO_COMBINER(Sum, a + b)
PYTURBO_COMBINER(Product, a* b)
PYTURBO_COMBINER(Min, min(a, b))
PYTURBO_COMBINER(Max, max(a, b))
PYTURBO_COMBINER(And, a& b)
PYTURBO_COMBINER(Or, a | b)
PYTURBO_COMBINER(Xor, a ^ b)
#undef PYTURBO_COMBINER

// Combines lanes [first, first + count) as a tree: neighbours first, then neighbouring pairs, and so on.
// Inactive lanes are left out, as if they held the identity.
template <typename Combiner, typename T>
PYTURBO_LANES T combine_lanes(const Exchange& exchange, uint first, uint count) {
  T values[kLanes];
  uint active = exchange.active >> first;
  for (uint i = 0; i < count; ++i) values[i] = peer<T>(exchange, first + i);
  for (uint stride = 1; stride < count; stride *= 2) {
    for (uint i = 0; i < count; i += 2 * stride) {
      if (!(active >> (i + stride) & 1u)) continue;
      values[i] = active >> i & 1u ? Combiner::apply(values[i], values[i + stride]) : values[i + stride];
      active |= 1u << i;
    }
  }
  return values[0];
}

// Returns the common result of all lanes, computed by the first lane that arrives.
template <typename Combiner, typename T>
PYTURBO_LANES T reduce(const T& value, uint site) {
  Exchange& exchange = publish(value, site);
  T result;
  if (exchange.reduced) {
    __builtin_memcpy(static_cast<void*>(&result), exchange.result, sizeof(T));
    return result;
  }
  result = combine_lanes<Combiner, T>(exchange, 0, kLanes);
  __builtin_memcpy(exchange.result, &result, sizeof(T));
  exchange.reduced = true;
  return result;
}

// Combines the lanes below this one, in ascending order from the identity; inclusive: and this lane.
template <typename Combiner, typename T>
PYTURBO_LANES T prefix(const T& value, T identity, bool inclusive, uint site) {
  const Exchange& exchange = publish(value, site);
  const uint end = pyturbo::simt::lane() + inclusive;
  T result = identity;
  for (uint lane = 0, any = 0; lane < end; ++lane) {
    if (!(exchange.active >> lane & 1u)) continue;
    result = any ? Combiner::apply(result, peer<T>(exchange, lane)) : peer<T>(exchange, lane);
    any = 1;
  }
  return result;
}

// Returns the mask of active lanes that published a true value.
PYTURBO_LANES uint ballot(bool value, uint site) {
  Exchange& exchange = publish(value, site);
  uint votes = 0;
  if (exchange.reduced) {
    __builtin_memcpy(&votes, exchange.result, sizeof(votes));
    return votes;
  }
  for (uint lane = 0; lane < kLanes; ++lane)
    if (exchange.active >> lane & 1u) votes |= uint(peer<uchar>(exchange, lane) != 0) << lane;
  __builtin_memcpy(exchange.result, &votes, sizeof(votes));
  exchange.reduced = true;
  return votes;
}

PYTURBO_LANES uint active_lanes(uint site) { return publish(uchar(0), site).active; }

}  // namespace detail

#define PYTURBO_REDUCTION(name, Combiner)                              \
  template <typename A, typename T = detail::plain_t<A>>               \
  inline T simd_##name(const A& value, uint site = __builtin_LINE()) { \
    return detail::reduce<detail::Combiner, T>(value, site);           \
  }
PYTURBO_REDUCTION(sum, Sum)
PYTURBO_REDUCTION(product, Product)
PYTURBO_REDUCTION(min, Min)
PYTURBO_REDUCTION(max, Max)
PYTURBO_REDUCTION(and, And)
PYTURBO_REDUCTION(or, Or)
PYTURBO_REDUCTION(xor, Xor)
#undef PYTURBO_REDUCTION

#define PYTURBO_PREFIX(name, Combiner, identity)                                        \
  template <typename A, typename T = detail::plain_t<A>>                                \
  inline T simd_prefix_inclusive_##name(const A& value, uint site = __builtin_LINE()) { \
    return detail::prefix<detail::Combiner, T>(value, T(identity), true, site);         \
  }                                                                                     \
  template <typename A, typename T = detail::plain_t<A>>                                \
  inline T simd_prefix_exclusive_##name(const A& value, uint site = __builtin_LINE()) { \
    return detail::prefix<detail::Combiner, T>(value, T(identity), false, site);        \
  }
PYTURBO_PREFIX(sum, Sum, 0)
PYTURBO_PREFIX(product, Product, 1)
#undef PYTURBO_PREFIX

// A bit per lane.
class simd_vote {
 public:
  using vote_t = ulong;
  explicit constexpr simd_vote(vote_t votes = 0) : votes_(votes) {}
  explicit constexpr operator vote_t() const { return votes_; }
  constexpr bool all() const { return votes_ == 0xffffffffu; }
  constexpr bool any() const { return votes_ != 0; }

 private:
  vote_t votes_;
};

inline simd_vote simd_ballot(bool value, uint site = __builtin_LINE()) {
  return simd_vote(detail::ballot(value, site));
}
inline bool simd_any(bool value, uint site = __builtin_LINE()) { return detail::ballot(value, site) != 0; }
inline bool simd_all(bool value, uint site = __builtin_LINE()) { return detail::ballot(!value, site) == 0; }
inline simd_vote simd_active_threads_mask(uint site = __builtin_LINE()) {
  return simd_vote(detail::active_lanes(site));
}
inline bool simd_is_first(uint site = __builtin_LINE()) {
  return uint(__builtin_ctz(detail::active_lanes(site))) == pyturbo::simt::lane();
}

}  // namespace PYTURBO_VARIANT
}  // namespace metal
