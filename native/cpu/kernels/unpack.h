// Codes of a block of weights, as bytes in the order of activations.h. A kind of codes, Q here and in all
// quantized_*.h, says how many bits a code has and what the bytes made of it stand for.
#pragma once

#include "cpu/kernels/activations.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Codes of the affine format: 0 .. 2^bits - 1.
template <uint32_t bits>
struct Integers {
  static constexpr uint32_t kBits = bits;
  static constexpr bool kFloats = false;                        // scales are plain floats
  static constexpr bool kSigned = bits == 8 && kSignedWeights;  // bytes are, so that `dot` can take them
  static constexpr int32_t kOffset = kSigned ? 128 : 0;         // a byte plus this is the number
};

// E2M1, doubled to be integers: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives. Scales are halved for it.
struct E2m1Codes {
  static constexpr uint32_t kBits = 4;
  static constexpr bool kFloats = true;  // scales are small floats
  static constexpr bool kSigned = kSignedWeights;
  static constexpr int32_t kOffset = kSigned ? 0 : -12;
};

// Bytes below 64.
struct SmallIntegers : Integers<8> {
  static constexpr bool kSigned = false;
  static constexpr int32_t kOffset = 0;
};

// E2M1 codes of GGUF blocks, doubled, plus 12.
struct CenteredE2m1 : SmallIntegers {
  static constexpr int32_t kOffset = -12;
};

// The bits of what bytes of codes hold, for `dot`.
template <typename Q>
constexpr uint32_t kDotBits = Q::kBits;
template <>
constexpr uint32_t kDotBits<SmallIntegers> = 6;
template <>
constexpr uint32_t kDotBits<CenteredE2m1> = 6;

// E4M3, whose bytes stand for themselves.
struct E4m3Codes {
  static constexpr uint32_t kBits = 8;
  static constexpr bool kFloats = true;
  static constexpr bool kSigned = false;
};

PYTURBO_INLINE U8 high_nibbles(U8 bytes) {
  if constexpr (kBytes == 16) return bytes >> 4;  // larger vectors have no shifts of bytes
  return (U8)((U16)bytes >> 4) & 0x0f;
}

// Whether each byte has codes of its own, so that they can be unpacked wherever it lies.
template <typename Q>
constexpr bool kWithinBytes = 8 % Q::kBits == 0;

// The codes of a vector of such bytes, as kClasses vectors.
template <typename Q>
PYTURBO_INLINE void split(U8 bytes, U8* codes) {
  if constexpr (Q::kBits == 8) {
    codes[0] = bytes;
    if constexpr (Q::kSigned) codes[0] ^= 0x80;
  } else if constexpr (Q::kBits == 4) {
    bytes = held(bytes);
    codes[0] = bytes & 0x0f;
    codes[1] = high_nibbles(bytes);
    if constexpr (Q::kFloats) {
      constexpr uint8_t kZero = uint8_t(-Q::kOffset);
      static constexpr uint8_t kTwice[16] = {kZero,
                                             kZero + 1,
                                             kZero + 2,
                                             kZero + 3,
                                             kZero + 4,
                                             kZero + 6,
                                             kZero + 8,
                                             kZero + 12,
                                             kZero,
                                             uint8_t(kZero - 1),
                                             uint8_t(kZero - 2),
                                             uint8_t(kZero - 3),
                                             uint8_t(kZero - 4),
                                             uint8_t(kZero - 6),
                                             uint8_t(kZero - 8),
                                             uint8_t(kZero - 12)};
      codes[0] = lookup(kTwice, codes[0]);
      codes[1] = lookup(kTwice, codes[1]);
    }
  } else {
    static_assert(Q::kBits == 2);
    codes[0] = bytes & 0x03;
    codes[1] = (U8)((U16)bytes >> 2) & 0x03;
    codes[2] = (U8)((U16)bytes >> 4) & 0x03;
    codes[3] = (U8)((U16)bytes >> 6) & 0x03;
  }
}

// The kBlockBytes bytes at `from` as kClasses vectors of bytes.
template <typename Q>
PYTURBO_INLINE void unpack(const uint8_t* from, U8* codes) {
  if constexpr (kWithinBytes<Q>)
    split<Q>(load_vector<U8>(from), codes);
  else
    codes[0] = spread<Q::kBits>(from);
}

// The same where only `bytes` bytes may be read; codes past them are zeros.
template <typename Q>
PYTURBO_INLINE void unpack_part(const uint8_t* from, uint32_t bytes, U8* codes) {
  uint8_t copy[Order<Q::kBits>::kBlockBytes] = {};
  for (uint32_t i = 0; i < bytes; ++i) copy[i] = from[i];
  unpack<Q>(copy, codes);
}

// The numbers that bytes, one in each lane, stand for.
template <typename Q>
PYTURBO_INLINE F32 numbers(I32 bytes) {
  if constexpr (Q::kBits == 8 && Q::kFloats) {
    return from_e4m3(__builtin_convertvector((bytes ^ 0x80) - 0x80, U16Half));
  } else {
    if constexpr (Q::kSigned) bytes = (bytes ^ 0x80) - 0x80;
    return to_float(bytes + Q::kOffset);
  }
}

// The number that one code stands for.
template <typename Q>
PYTURBO_INLINE float number(uint32_t code) {
  if constexpr (!Q::kFloats) {
    return float(code);
  } else if constexpr (Q::kBits == 4) {
    const float magnitude = float((0xc8643210u >> ((code & 7) * 4)) & 15);
    return code & 8 ? -magnitude : magnitude;
  } else {
    return numbers<Q>(I32{} + int32_t(code))[0];
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
