// How the lanes of a simdgroup share the values of a head.
#pragma once

#include <metal_stdlib>
using namespace metal;

// The values of one head that a lane holds: runs of four neighbours, or one run of two.
template <uint max_dim>
struct Share {
  static constexpr constant uint kValues = max_dim / 32;
  static constexpr constant uint kRun = kValues < 4 ? kValues : 4;

  float values[kValues];

  // Lane's share of a head of `dim` values, zero past its end.
  template <typename T>
  void load(device const T* head, uint dim, uint lane) {
    for (uint i = 0; i < kValues; i += kRun) {
      const uint column = (i / kRun * 32 + lane) * kRun;
      vec<float, kRun> run = 0;
      if (column < dim) run = vec<float, kRun>(*(device const vec<T, kRun>*)(head + column));
      for (uint c = 0; c < kRun; ++c) values[i + c] = run[c];
    }
  }

  // The same of floats at any address. Floats is a pointer into device or threadgroup memory.
  template <typename Floats>
  void load_floats(Floats head, uint dim, uint lane) {
    for (uint i = 0; i < kValues; i += kRun) {
      const uint column = (i / kRun * 32 + lane) * kRun;
      for (uint c = 0; c < kRun; ++c) values[i + c] = column < dim ? head[column + c] : 0.0f;
    }
  }

  template <typename Floats>
  void store(Floats head, uint dim, uint lane) const {
    for (uint i = 0; i < kValues; i += kRun) {
      const uint column = (i / kRun * 32 + lane) * kRun;
      for (uint c = 0; c < kRun && column < dim; ++c) head[column + c] = values[i + c];
    }
  }
};
