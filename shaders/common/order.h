// Order of floats as integers, which is the same on every device, subnormal numbers included.
#pragma once

#include <metal_stdlib>
using namespace metal;

constexpr constant uint kNoIndex = 0xffffffff;

// Increases with x: -inf, ..., -0 equal to 0, ..., inf, then every NaN. Above 0, which stands for no value.
inline uint order_key(float x) {
  const uint bits = as_type<uint>(x);
  const uint magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0xffffffff;
  return magnitude == bits ? 0x80000000 + magnitude : 0x80000000 - magnitude;
}

// A value by its key, and where it is.
struct Ranked {
  uint key;
  uint index;
};

// The largest of a simdgroup, the lowest index among equals; every lane gets it.
inline Ranked simd_best(Ranked own) {
  const uint key = simd_max(own.key);
  return Ranked{key, simd_min(own.key == key ? own.index : kNoIndex)};
}
