// The gates of a delta net's head.
#pragma once

#include "../common/activations.h"

// log(1 + e^x) = max(x, 0) + log(1 + u), u = e^-|x|. With w = 1 + u as rounded, log(1 + u) is u * log(w) / (w - 1):
// the quotient hardly differs between w and 1 + u, and w - 1 is exact.
inline float softplus(float x) {
  const float u = exp(-fabs(x));
  const float w = 1.0f + u;
  return max(x, 0.0f) + (w == 1.0f ? u : log(w) * u / (w - 1.0f));
}

// The factor by which a head's state decays.
inline float decay_of(float a, float a_log, float dt_bias) {
  return exp(-exp(a_log) * softplus(a + dt_bias));
}
