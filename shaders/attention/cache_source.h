// A key head of a cache of floats, as tiles of attention read it.
#pragma once

#include "tiled.h"

template <typename T>
struct CacheSource {
  Ring ring;
  device const T* head;
  ulong stride;  // elements from one cache row to the next
  uint dim;

  vec<T, 4> four(uint key, uint column) const {
    return *(device const vec<T, 4>*)(head + ring.row(key) * stride + column);
  }
};
