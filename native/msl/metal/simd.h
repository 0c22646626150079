// Reductions, prefix sums and votes over the active lanes of a simdgroup.
#pragma once

#include "lanes.h"
#include "metal/vector_math.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

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

}  // namespace detail

#define PYTURBO_REDUCTION(name, Combiner)                          \
  template <typename A, typename T = detail::plain_t<A>>           \
  inline T simd_##name(const A& value, uint site = PYTURBO_SITE) { \
    return detail::reduce<detail::Combiner, T>(value, site);       \
  }
PYTURBO_REDUCTION(sum, Sum)
PYTURBO_REDUCTION(product, Product)
PYTURBO_REDUCTION(min, Min)
PYTURBO_REDUCTION(max, Max)
PYTURBO_REDUCTION(and, And)
PYTURBO_REDUCTION(or, Or)
PYTURBO_REDUCTION(xor, Xor)
#undef PYTURBO_REDUCTION

#define PYTURBO_PREFIX(name, Combiner, identity)                                    \
  template <typename A, typename T = detail::plain_t<A>>                            \
  inline T simd_prefix_inclusive_##name(const A& value, uint site = PYTURBO_SITE) { \
    return detail::prefix<detail::Combiner, T>(value, T(identity), true, site);     \
  }                                                                                 \
  template <typename A, typename T = detail::plain_t<A>>                            \
  inline T simd_prefix_exclusive_##name(const A& value, uint site = PYTURBO_SITE) { \
    return detail::prefix<detail::Combiner, T>(value, T(identity), false, site);    \
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

inline simd_vote simd_ballot(bool value, uint site = PYTURBO_SITE) {
  return simd_vote(detail::ballot(value, site));
}
inline bool simd_any(bool value, uint site = PYTURBO_SITE) { return detail::ballot(value, site) != 0; }
inline bool simd_all(bool value, uint site = PYTURBO_SITE) { return detail::ballot(!value, site) == 0; }
inline simd_vote simd_active_threads_mask(uint site = PYTURBO_SITE) {
  return simd_vote(detail::active_lanes(site));
}
inline bool simd_is_first(uint site = PYTURBO_SITE) {
  return uint(detail::trailing_zeros(detail::active_lanes(site))) == detail::lane();
}

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
