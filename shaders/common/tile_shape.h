// The shape of the tiles of matmul kernels: a threadgroup computes 64 tokens x 128 outs, a simdgroup 16 outs of
// all tokens, so that it can leave out rows that do not exist.
#pragma once

#include "units.h"

constexpr constant uint kTileTokens = 64;
constexpr constant uint kTileOuts = 128;
constexpr constant uint kTileThreads = 256;   // of a threadgroup
constexpr constant uint kTileFloats = 4224;   // of threadgroup memory
constexpr constant uint kSimdgroupOuts = 16;  // of a simdgroup
