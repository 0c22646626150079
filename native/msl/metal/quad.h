// The simdgroup functions over quads: four neighbouring lanes.
#pragma once

#include "metal/simd_shuffle.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

#define PYTURBO_REDUCTION(name, Combiner)                          \
  template <typename A, typename T = detail::plain_t<A>>           \
  inline T quad_##name(const A& value, uint site = PYTURBO_SITE) { \
    return detail::quad_reduce<detail::Combiner, T>(value, site);  \
  }
PYTURBO_REDUCTION(sum, Sum)
PYTURBO_REDUCTION(product, Product)
PYTURBO_REDUCTION(min, Min)
PYTURBO_REDUCTION(max, Max)
PYTURBO_REDUCTION(and, And)
PYTURBO_REDUCTION(or, Or)
PYTURBO_REDUCTION(xor, Xor)
#undef PYTURBO_REDUCTION

#define PYTURBO_SHUFFLE(name, parameter, source)                                     \
  template <typename A, typename T = detail::plain_t<A>>                             \
  inline T quad_##name(const A& value, ushort parameter, uint site = PYTURBO_SITE) { \
    const uint lane = detail::lane(), quad = lane & ~3u;                             \
    return detail::shuffle<T>(value, source, site);                                  \
  }
PYTURBO_SHUFFLE(broadcast, from, quad | from)
PYTURBO_SHUFFLE(shuffle, from, quad | from)
PYTURBO_SHUFFLE(shuffle_xor, mask, quad | (lane ^ mask))
PYTURBO_SHUFFLE(shuffle_up, delta, lane < quad + delta ? lane : lane - delta)
PYTURBO_SHUFFLE(shuffle_down, delta, lane + delta < quad + 4 ? lane + delta : lane)
#undef PYTURBO_SHUFFLE

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
