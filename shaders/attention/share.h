// How the lanes of a simdgroup share the values of a head.
#pragma once

#include <metal_stdlib>
using namespace metal;

// The values of one head that a lane holds: runs of four neighbours, or one run of two. Loops over them are
// unrolled, so that they are registers.
template <uint max_dim>
struct Share {
  static constexpr constant uint kValues = max_dim / 32;
  static constexpr constant uint kRun = kValues < 4 ? kValues : 4;

  float values[kValues];

  // Lane's share of a head of `dim` values, zero past its end.
  template <typename T>
  void load(device const T* head, uint dim, uint lane) {
#pragma unroll
    for (uint i = 0; i < kValues; i += kRun) {
      const uint column = (i / kRun * 32 + lane) * kRun;
      if (column < dim) {
        const vec<T, kRun> run = *(device const vec<T, kRun>*)(head + column);
#pragma unroll
        for (uint c = 0; c < kRun; ++c) values[i + c] = float(run[c]);
      } else {
#pragma unroll
        for (uint c = 0; c < kRun; ++c) values[i + c] = 0.0f;
      }
    }
  }

  // The same of floats at any address. Floats is a pointer into device or threadgroup memory.
  template <typename Floats>
  void load_floats(Floats head, uint dim, uint lane) {
#pragma unroll
    for (uint i = 0; i < kValues; i += kRun) {
      const uint column = (i / kRun * 32 + lane) * kRun;
#pragma unroll
      for (uint c = 0; c < kRun; ++c) values[i + c] = column < dim ? head[column + c] : 0.0f;
    }
  }

  float dot(thread const Share& other) const {
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < kValues; ++i) sum = fma(values[i], other.values[i], sum);
    return sum;
  }

  template <typename Floats>
  void store(Floats head, uint dim, uint lane) const {
#pragma unroll
    for (uint i = 0; i < kValues; i += kRun) {
      const uint column = (i / kRun * 32 + lane) * kRun;
      if (column >= dim) continue;
#pragma unroll
      for (uint c = 0; c < kRun; ++c) head[column + c] = values[i + c];
    }
  }
};

// A share of stored values that is still on its way from memory.
template <typename T, uint max_dim>
struct Raw {
  static constexpr constant uint kRun = Share<max_dim>::kRun;

  vec<T, kRun> runs[Share<max_dim>::kValues / kRun];

  void load(device const T* head, uint dim, uint lane) {
#pragma unroll
    for (uint i = 0; i < Share<max_dim>::kValues / kRun; ++i) {
      const uint column = (i * 32 + lane) * kRun;
      if (column < dim) {
        const vec<T, kRun> run = *(device const vec<T, kRun>*)(head + column);
        runs[i] = run;
      } else {
        runs[i] = vec<T, kRun>(T(0));
      }
    }
  }

  // The share, zero past the end of the head.
  Share<max_dim> share() const {
    Share<max_dim> floats;
#pragma unroll
    for (uint i = 0; i < Share<max_dim>::kValues; ++i) floats.values[i] = float(runs[i / kRun][i % kRun]);
    return floats;
  }
};
