// The most values of a latent and of a rotary key.
#pragma once

#include <metal_stdlib>
using namespace metal;

constexpr constant uint kMaxRank = 512;
constexpr constant uint kMaxRope = 64;
