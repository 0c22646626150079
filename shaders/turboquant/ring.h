// The rows of a range of keys of a compressed cache.
#pragma once

#include "../attention/attention.h"
#include "codec.h"

// The same rows as ring_row, without a division for each key, for the `capacity` keys from `first` on.
inline Ring ring_from(uint ring_start, uint first, uint capacity) {
  return Ring{first - ring_row(ring_start, first, capacity), capacity};
}
