// Chooses the best experts of a token: the counterpart of shaders/moe/choose.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kMaxExperts = 512;
constexpr uint32_t kMaxChoices = 16;
constexpr double kRankTime = 0.3;  // nanoseconds to look at one expert for one choice

// Increases with x: -inf, ..., -0 equal to 0, ..., inf, then every NaN.
PYTURBO_INLINE uint32_t order_key(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0xffffffff;
  return magnitude == bits ? 0x80000000 + magnitude : 0x80000000 - magnitude;
}

// The place of the largest key, the first among equals. The key becomes 0.
PYTURBO_INLINE uint32_t take_best(uint32_t* keys, uint32_t count) {
  uint32_t most = 0;
  for (uint32_t e = 0; e < count; ++e) most = keys[e] > most ? keys[e] : most;
  uint32_t best = 0;
  while (keys[best] != most) ++best;
  keys[best] = 0;
  return best;
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
