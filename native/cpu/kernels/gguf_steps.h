// The codes of GGUF blocks in vectors of the level: a step is a block, or as many small ones as fill a
// vector.
#pragma once

#include "cpu/kernels/gguf_types.h"
#include "cpu/kernels/unpack.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

template <typename T>
constexpr uint32_t kStepBlocks = T::kBlock < kBytes ? kBytes / T::kBlock : 1;
template <typename T>
constexpr uint32_t kStep = kStepBlocks<T> * T::kBlock;  // values
template <typename T>
constexpr uint32_t kStepVectors = kStep<T> / kBytes;

constexpr uint32_t kLine = 64;  // bytes of a cache line

// The kind of codes that blocks of a type become.
template <uint32_t bits>
struct CodesOf {
  using Kind = SmallIntegers;
};
template <>
struct CodesOf<8> {
  using Kind = Integers<8>;
};
template <typename T>
using BlockCodes = typename CodesOf<T::kBits>::Kind;

// Codes for what T::codes gives.
template <typename T>
PYTURBO_INLINE U8 looked_up(U8 codes) {
  if constexpr (requires { T::kTable; })
    return lookup(T::kTable, codes);
  else
    return codes;
}

// Vector i of a step.
template <typename T>
PYTURBO_INLINE U8 step_codes(const uint8_t* from, uint32_t i) {
  const uint32_t at = i * kBytes;
  if constexpr (requires { T::kRuns; }) {
    return T::template codes<U8>(from, at);
  } else if constexpr (kBytes == 64) {
    const auto piece = [&](uint32_t value) {
      return T::template codes<U8x32>(from + value / T::kBlock * T::kBlockBytes, value % T::kBlock);
    };
    return looked_up<T>(join(piece(at), piece(at + 32)));
  } else {
    return looked_up<T>(T::template codes<U8>(from, at));
  }
}

// The vector of a last block that does not fill one; zeros follow.
template <typename T>
PYTURBO_INLINE U8 last_codes(const uint8_t* from) {
  if constexpr (kStepBlocks<T> > 1)
    return looked_up<T>(join(T::template codes<U8x32>(from, 0), U8x32{}));
  else
    return U8{};
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
