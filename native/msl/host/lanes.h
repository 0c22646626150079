// The lanes of a simdgroup, which exchange values through the executor.
#pragma once

#include "metal/vec.h"
#include "pyturbo/simt.h"

// Exchanged values are in the executor's memory, which is not checked.
#define PYTURBO_LANES __attribute__((no_sanitize_thread)) inline

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

using pyturbo::simt::Exchange;
using pyturbo::simt::lane;
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

// Combines the four lanes of this lane's quad.
template <typename Combiner, typename T>
PYTURBO_LANES T quad_reduce(const T& value, uint site) {
  return combine_lanes<Combiner, T>(publish(value, site), lane() & ~3u, 4);
}

template <typename T>
PYTURBO_LANES T shuffle(const T& value, uint lane, uint site) {
  return peer<T>(publish(value, site), lane);
}

// Returns the value of the first active lane.
template <typename T>
PYTURBO_LANES T first_value(const T& value, uint site) {
  const Exchange& exchange = publish(value, site);
  return peer<T>(exchange, uint(__builtin_ctz(exchange.active)));
}

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
