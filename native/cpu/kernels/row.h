// Loops over the floats of a row, whatever its length.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// fn(i, count): count == kLanes for whole vectors, then the rest of the row.
template <typename Fn>
PYTURBO_INLINE void for_vectors(uint32_t dim, const Fn& fn) {
  uint32_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) fn(i, kLanes);
  if (i < dim) fn(i, dim - i);
}

// `count` floats, the others zero.
template <typename S>
PYTURBO_INLINE F32 load_some(const S* from, uint32_t count) {
  return count == kLanes ? load_floats(from) : load_floats(from, count, count);
}

template <typename S>
PYTURBO_INLINE float load_float(const S* from) {
  return load_floats(from, 1, 1)[0];
}

template <typename S>
PYTURBO_INLINE void store_some(S* to, F32 v, uint32_t count) {
  if (count == kLanes) return store_floats(to, v);
  S values[kLanes];
  store_floats(values, v);
  for (uint32_t i = 0; i < count; ++i) to[i] = values[i];
}

// Rows are short: calls of memcpy and memset with an unknown length cost more than the copy.
PYTURBO_INLINE void copy_row(float* to, const float* from, uint32_t count) {
  for_vectors(count, [&](uint32_t i, uint32_t some) { store_some(to + i, load_some(from + i, some), some); });
}

PYTURBO_INLINE void clear_row(float* to, uint32_t count) {
  for_vectors(count, [&](uint32_t i, uint32_t some) { store_some(to + i, F32{}, some); });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
