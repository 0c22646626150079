// Moving values between the lanes of a simdgroup.
#pragma once

#include "metal/simd.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

#define PYTURBO_SHUFFLE(name, parameter, source)                                     \
  template <typename A, typename T = detail::plain_t<A>>                             \
  inline T simd_##name(const A& value, ushort parameter, uint site = PYTURBO_SITE) { \
    [[maybe_unused]] const uint lane = detail::lane();                               \
    return detail::shuffle<T>(value, source, site);                                  \
  }
PYTURBO_SHUFFLE(broadcast, from, from)
PYTURBO_SHUFFLE(shuffle, from, from)
PYTURBO_SHUFFLE(shuffle_xor, mask, lane ^ mask)
// No wrap-around: lanes without a source keep their own value.
PYTURBO_SHUFFLE(shuffle_up, delta, lane < delta ? lane : lane - delta)
PYTURBO_SHUFFLE(shuffle_down, delta, lane + delta < detail::kLanes ? lane + delta : lane)
PYTURBO_SHUFFLE(shuffle_rotate_up, delta, (lane - delta) % detail::kLanes)
PYTURBO_SHUFFLE(shuffle_rotate_down, delta, (lane + delta) % detail::kLanes)
#undef PYTURBO_SHUFFLE

template <typename A, typename T = detail::plain_t<A>>
inline T simd_broadcast_first(const A& value, uint site = PYTURBO_SITE) {
  return detail::first_value<T>(value, site);
}

// Lanes without a source take from `filling`, as if it preceded (up) or followed (down) the values.
// Groups of `modulo` lanes are shuffled separately.
template <typename A, typename T = detail::plain_t<A>>
inline T simd_shuffle_and_fill_up(const A& value, const detail::NoDeduce<T>& filling, ushort delta,
                                  ushort modulo = detail::kLanes, uint site = PYTURBO_SITE) {
  const uint lane = detail::lane(), position = lane % modulo;
  const uint source = lane - position + (position + modulo - delta) % modulo;
  const T moved = detail::shuffle<T>(value, source, site);
  const T fill = detail::shuffle<T>(filling, source, site);
  return position < delta ? fill : moved;
}

template <typename A, typename T = detail::plain_t<A>>
inline T simd_shuffle_and_fill_down(const A& value, const detail::NoDeduce<T>& filling, ushort delta,
                                    ushort modulo = detail::kLanes, uint site = PYTURBO_SITE) {
  const uint lane = detail::lane(), position = lane % modulo;
  const uint source = lane - position + (position + delta) % modulo;
  const T moved = detail::shuffle<T>(value, source, site);
  const T fill = detail::shuffle<T>(filling, source, site);
  return position + delta >= modulo ? fill : moved;
}

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
