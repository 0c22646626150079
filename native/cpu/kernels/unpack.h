// Codes of a block of weights, as bytes in the order of activations.h.
#pragma once

#include "cpu/kernels/activations.h"

namespace pyturbo::cpu::PYTURBO_ISA {

// What was subtracted from each code, so that it fits the bytes that `dot` takes.
template <uint32_t bits>
constexpr float kCodeOffset = bits == 8 && kSignedWeights ? 128.0f : 0.0f;

// The kBlockBytes bytes at `from` as kClasses vectors of codes.
template <uint32_t bits>
PYTURBO_INLINE void unpack(const uint8_t* from, U8* codes) {
  if constexpr (bits == 8) {
    codes[0] = load_vector<U8>(from);
    if constexpr (kSignedWeights) codes[0] ^= 0x80;
  } else if constexpr (bits == 4) {
    const U8 bytes = held(load_vector<U8>(from));
    codes[0] = bytes & 0x0f;
    codes[1] = (U8)((U16)bytes >> 4) & 0x0f;
  } else if constexpr (bits == 2) {
    const U8 bytes = load_vector<U8>(from);
    codes[0] = bytes & 0x03;
    codes[1] = (U8)((U16)bytes >> 2) & 0x03;
    codes[2] = (U8)((U16)bytes >> 4) & 0x03;
    codes[3] = (U8)((U16)bytes >> 6) & 0x03;
  } else {
    codes[0] = spread<bits>(from);
  }
}

// The same where only `bytes` bytes may be read; values past them are zeros.
template <uint32_t bits>
PYTURBO_INLINE void unpack_part(const uint8_t* from, uint32_t bytes, U8* codes) {
  uint8_t copy[Order<bits>::kBlockBytes] = {};
  for (uint32_t i = 0; i < bytes; ++i) copy[i] = from[i];
  unpack<bits>(copy, codes);
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
