// A key head of a cache of floats, as tiles of attention read it.
#pragma once

#include "tiled.h"

template <typename T>
struct CacheSource {
  Ring ring;
  device const T* head;
  ulong stride;  // elements from one cache row to the next
  uint dim;

  bool load(KeyRange keys, uint column, uint tid, threadgroup float* tile) const {
    bool finite = true;
    for (uint i = tid; i < kKeys * kChunk / 4; i += kThreads) {
      const uint key = i / (kChunk / 4);
      const uint at = i % (kChunk / 4) * 4;
      float4 x = 0;
      if (keys.first + key < keys.end && column + at < dim) {
        const ulong row = ring.row(keys.first + key) * stride;
        x = float4(*(device const vec<T, 4>*)(head + row + column + at));
      }
      for (uint c = 0; c < 4; ++c) tile[key * kChunkStride + at + c] = x[c];
      finite = finite && all(isfinite(x));
    }
    return finite;
  }
};
