// The best experts of one token, chosen by the lanes of a simdgroup.
#pragma once

#include "../common/order.h"

constexpr constant uint kPerLane = 16;  // experts of one lane: lane, lane + 32, ...

// Lane c gets the expert with the c-th largest of the simdgroup's keys, the lower one among equals; lanes
// from k on get 0. keys are 0 where there is no expert, and become 0 where one is chosen.
inline uint choose_best(thread uint* keys, uint k, uint lane) {
  uint own = 0;
  for (uint choice = 0; choice < k; ++choice) {
    Ranked best = {0, kNoIndex};
#pragma unroll
    for (uint i = 0; i < kPerLane; ++i) {
      if (keys[i] > best.key) best = Ranked{keys[i], lane + 32 * i};
    }
    best = simd_best(best);
    if (lane == choice) own = best.index;
#pragma unroll
    for (uint i = 0; i < kPerLane; ++i) {
      if (lane + 32 * i == best.index) keys[i] = 0;
    }
  }
  return own;
}
