// Floats as sums of bfloats. Three terms of 8 bits hold the 24 bits of a float exactly. Terms of two vectors
// are stored in pairs: lane i of the first and lane i of the second in 32 bits.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr uint32_t kTerms = 3;              // of a float
constexpr uint32_t kTermStep = 2 * kLanes;  // columns whose terms are stored together, i with i + kLanes

// The nearest bfloats in the upper halves. Not for values that round to infinity, nor for NaN.
PYTURBO_INLINE U32 nearest_bfloat(F32 v) { return ((U32)v + 0x8000) & 0xffff0000; }

// Splits columns [0, kLanes) and [kLanes, kTermStep) of a step into `terms` vectors of pairs.
template <uint32_t terms>
PYTURBO_INLINE void split_terms(F32 first, F32 second, U32* pairs) {
#pragma GCC unroll 3
  for (uint32_t term = 0; term < terms; ++term) {
    const U32 a = nearest_bfloat(first), b = nearest_bfloat(second);
    pairs[term] = (a >> 16) | b;
    first -= (F32)a;
    second -= (F32)b;
  }
}

// Splits them into kTerms vectors with fewer operations: terms are cut off instead of rounded. They are exact
// too, but those after the first are up to twice as large.
PYTURBO_INLINE void cut_terms(F32 first, F32 second, U32* pairs) {
#pragma GCC unroll 3
  for (uint32_t term = 0; term < kTerms; ++term) {
    const U32 a = (U32)first & 0xffff0000, b = (U32)second & 0xffff0000;
    pairs[term] = ((U32)first >> 16) | b;
    first -= (F32)a;
    second -= (F32)b;
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
