// A matrix whose addresses stay in registers, where a compiler would compute them again in each turn of a loop.
#pragma once

#include <metal_stdlib>
using namespace metal;

template <typename W>
inline W held(thread const W& w) {
  return w;
}
