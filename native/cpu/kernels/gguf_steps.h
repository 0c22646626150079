// The codes of GGUF blocks in vectors of the level. A step is a block, or as many blocks of 32 values as fill
// a vector; a span is a block, or as many small ones as a vector has lanes.
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

template <typename T>
constexpr bool kLarge = T::kBlock > 32;
template <typename T>
constexpr uint32_t kSpanBlocks = kLarge<T> ? 1 : kLanes;
template <typename T>
constexpr uint32_t kSpan = kSpanBlocks<T> * T::kBlock;  // values
template <typename T>
constexpr uint32_t kSpanBytes = kSpanBlocks<T> * T::kBlockBytes;

// The scales of blocks of 32 values, from the words that they begin with.
template <typename T>
PYTURBO_INLINE F32 scales_of_words(U32 words) {
  if constexpr (requires { T::scales(words); })
    return T::scales(words);
  else
    return from_half(lower_halves(words));
}

// The kind of codes that blocks of a type become.
template <typename T, uint32_t bits = T::kBits>
struct CodesOf {
  using Kind = SmallIntegers;
};
template <typename T>
struct CodesOf<T, 8> {
  using Kind = Integers<8>;
};
template <>
struct CodesOf<Mxfp4> {  // whose scales go up to 2^127: a bias of -12 * scale may overflow
  using Kind = CenteredE2m1;
};
template <typename T>
using BlockCodes = typename CodesOf<T>::Kind;

// The code of zero where values are (code - zero) * scale, else -1.
template <typename T>
constexpr int32_t zero_of() {
  if constexpr (requires { T::kZero; })
    return T::kZero;
  else
    return -1;
}

// What minima are multiplied by, or scales where these are minima, too.
template <typename T>
constexpr float kMinimumFactor = zero_of<T>() < 0 ? 1 : float(zero_of<T>());

// What blocks of 32 values hold beside their codes, from the words that they begin with.
struct ScaleAndBias {
  F32 scale, bias;
};
template <typename T>
PYTURBO_INLINE ScaleAndBias scale_and_bias(U32 words) {
  const F32 scale = scales_of_words<T>(words);
  if constexpr (requires { T::kBiased; })
    return {scale, from_half(upper_halves(words))};
  else if constexpr (BlockCodes<T>::kOffset < 0)
    return {scale, F32{}};
  else
    return {scale, scale * -float(T::kZero)};
}

// The codes of 32 values from value `at` of a step on, in types with nibbles.
template <typename T>
PYTURBO_INLINE const uint8_t* nibbles_of(const uint8_t* from, uint32_t at) {
  return from + at / T::kBlock * T::kBlockBytes + T::kNibbles + at % T::kBlock / 32 * 16;
}

// The bits of kBytes values from value `at` of a step on, in types with a fifth bit.
template <typename T>
PYTURBO_INLINE auto fifth_bits(const uint8_t* from, uint32_t at) {
  if constexpr (kBytes == 64)
    return load_vector<uint32_t>(from + T::kFifth) |
           uint64_t(load_vector<uint32_t>(from + T::kBlockBytes + T::kFifth)) << 32;
  else if constexpr (kBytes == 32)
    return load_vector<uint32_t>(from + T::kFifth);
  else
    return load_vector<uint16_t>(from + T::kFifth + at / 8);
}

// Vector i of a step, as it is in the file.
template <typename T>
PYTURBO_INLINE U8 packed_codes(const uint8_t* from, uint32_t i) {
  const uint32_t at = i * kBytes;
  U8 codes;
  if constexpr (requires { T::kNibbles; }) {
    if constexpr (kBytes == 64)
      codes = split_nibbles(nibbles_of<T>(from, at), nibbles_of<T>(from, at + 32));
    else if constexpr (kBytes == 32)
      codes = split_nibbles(nibbles_of<T>(from, at));
    else
      codes = split_nibbles(nibbles_of<T>(from, at), at % 32 == 16);
    if constexpr (requires { T::kFifth; }) codes |= where_set(fifth_bits<T>(from, at), 16);
  } else if constexpr (kStepBlocks<T> > 1) {
    codes = join(T::template codes<U8x32>(from, 0), T::template codes<U8x32>(from + T::kBlockBytes, 0));
  } else {
    codes = T::template codes<U8>(from, at);
  }
  return codes;
}

// Vector i of a step.
template <typename T>
PYTURBO_INLINE U8 step_codes(const uint8_t* from, uint32_t i) {
  const U8 codes = packed_codes<T>(from, i);
  if constexpr (requires { T::kTable; })
    return lookup(T::kTable, codes);
  else
    return codes;
}

// The vector of a last block that does not fill one: of what follows, only that it is a code.
template <typename T>
PYTURBO_INLINE U8 last_codes(const uint8_t* from) {
  uint8_t blocks[kStepBlocks<T> * T::kBlockBytes] = {};
  std::memcpy(blocks, from, T::kBlockBytes);
  return step_codes<T>(blocks, 0);
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
