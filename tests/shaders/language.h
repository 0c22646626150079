#pragma once
#include <metal_stdlib>

struct Affine {
  float scale;
  int count;
  metal::float2 offset;
};
