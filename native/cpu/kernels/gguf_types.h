// The types of GGUF blocks: a struct for each says where codes and scales lie. A value is code * scale +
// bias, or (code - kZero) * scale in types that have a kZero.
//
// Codes: types with kNibbles have 16 bytes there for each 32 values, the low nibbles first, and a fifth bit
// in four bytes at kFifth, if they have that; codes() of the others gives a vector V of values from value
// `at` of a block on. Where there is a kTable, codes are looked up in it. Types without kNibbles that have
// scales for 32 values also say where codes lie: from kRuns on 32 bytes for each two groups, the low nibbles
// for the first of them, with a fifth bit for each group in the 32 bytes at kFifths, if there is that; or
// from kCodes on a byte for each value.
//
// Scales: blocks of 32 values have one, the half at byte 0, or what scales() makes of the first words of
// blocks, and kBiased ones a bias, the half after it. entries() of larger ones gives kScales scales and
// kMinima minima of a block, 16 or 32 floats, and a value is code * scale - minimum; in types with a kZero
// minima are multiplied by it, and where there are none they are the scales. What kZero says is a part of the
// biases, as far as the kind of codes has no offset.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

typedef uint32_t U32x4 __attribute__((vector_size(16)));
typedef uint64_t U64x2 __attribute__((vector_size(16)));

// A half in every lane.
PYTURBO_INLINE F32 half_at(const uint8_t* from) { return from_half(U16Half{} + load_vector<uint16_t>(from)); }

// A run of 32 bytes, or a part of it; twice in a vector of 64.
template <typename V>
PYTURBO_INLINE V load_run(const uint8_t* from) {
  if constexpr (sizeof(V) == 64)
    return load_twice<V>(from);
  else
    return load_vector<V>(from);
}

// Some bits of each byte, moved to the right, or to the left where `right` is negative; in a vector of 64
// bytes, those of the second half by `more`. Bytes of larger vectors are moved in pairs: `mask` leaves out
// what came from the other one.
template <typename V>
PYTURBO_INLINE V moved(V bytes, int32_t right, int32_t more, uint8_t mask) {
  if constexpr (sizeof(V) == 64) {
    return move_halves(bytes, right, right + more) & mask;
  } else {
    typedef uint16_t Pairs __attribute__((vector_size(sizeof(U8x32))));
    if constexpr (sizeof(V) == 16)
      return move_bytes(bytes, right, mask);
    else
      return (V)(right < 0 ? (Pairs)bytes << -right : (Pairs)bytes >> right) & mask;
  }
}

struct Q4_0 {
  static constexpr uint32_t kType = 2, kBlock = 32, kBlockBytes = 18, kGroup = 32, kBits = 6, kZero = 8;
  static constexpr uint32_t kNibbles = 2;
};

struct Q4_1 {
  static constexpr uint32_t kType = 3, kBlock = 32, kBlockBytes = 20, kGroup = 32, kBits = 6;
  static constexpr uint32_t kNibbles = 4;
  static constexpr bool kBiased = true;
};

struct Q5_0 {
  static constexpr uint32_t kType = 6, kBlock = 32, kBlockBytes = 22, kGroup = 32, kBits = 6, kZero = 16;
  static constexpr uint32_t kNibbles = 6, kFifth = 2;
};

struct Q5_1 {
  static constexpr uint32_t kType = 7, kBlock = 32, kBlockBytes = 24, kGroup = 32, kBits = 6;
  static constexpr uint32_t kNibbles = 8, kFifth = 4;
  static constexpr bool kBiased = true;
};

struct Q8_0 {
  static constexpr uint32_t kType = 8, kBlock = 32, kBlockBytes = 34, kGroup = 32, kBits = 8, kZero = 128;
  static constexpr uint32_t kCodes = 2;  // signed bytes
  template <typename V>
  PYTURBO_INLINE V codes(const uint8_t* from, uint32_t at) {
    return load_vector<V>(from + kCodes + at) ^ 128;
  }
};

struct Mxfp4 {
  static constexpr uint32_t kType = 39, kBlock = 32, kBlockBytes = 17, kGroup = 32, kBits = 6, kZero = 12;
  static constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  static constexpr uint32_t kNibbles = 1;
  PYTURBO_INLINE F32 scales(U32 words) {  // 2^(byte - 128)
    const U32 code = words & 0xff;
    return (F32)(code < 2 ? (U32{} + 0x00200000) << code : (code - 1) << 23);
  }
};

// The values of IQ4_NL and IQ4_XS are not evenly spaced. These are they plus 128.
constexpr uint8_t kUnevenCodes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};

struct Iq4Nl {
  static constexpr uint32_t kType = 20, kBlock = 32, kBlockBytes = 18, kGroup = 32, kBits = 8, kZero = 128;
  static constexpr const uint8_t* kTable = kUnevenCodes;
  static constexpr uint32_t kNibbles = 2;
};

// 16 bytes plus an offset, times a factor for each vector of results.
PYTURBO_INLINE void scale_bytes(U8x16 bytes, int32_t offset, const F32* factors, F32* to) {
  I32 words[16 / kLanes];
  widen_all(bytes, words);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 16 / kLanes; ++i) to[i] = to_float(words[i] + offset) * factors[i];
}

// The same with one factor.
PYTURBO_INLINE void scale_bytes(U8x16 bytes, int32_t offset, F32 factor, F32* to) {
  F32 factors[16 / kLanes];
  for (F32& f : factors) f = factor;
  scale_bytes(bytes, offset, factors, to);
}

struct Iq4Xs {
  static constexpr uint32_t kType = 23, kBlock = 256, kBlockBytes = 136, kGroup = 32, kBits = 8, kZero = 128;
  static constexpr const uint8_t* kTable = kUnevenCodes;
  static constexpr uint32_t kNibbles = 8;
  // Six bits for each of 8 scales, the low four in the nibbles of four bytes, the high two in the two before.
  // Zero is the code 128: the minima are the scales times that.
  static constexpr uint32_t kScales = 8, kMinima = 8;
  static constexpr uint32_t kFactor = 0, kScaleZero = 32;
  PYTURBO_INLINE U8x16 scale_codes(const uint8_t* from) {
    uint64_t low = load_vector<uint32_t>(from + 4), high = load_vector<uint16_t>(from + 2);
    low = (low | low << 16) & 0x0000ffff0000ffff, high = (high | high << 24) & 0x000000ff000000ff;
    low = (low | low << 8) & 0x00ff00ff00ff00ff, high = (high | high << 12) & 0x000f000f000f000f;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f, high = (high | high << 6) & 0x0303030303030303;
    const uint64_t all = low | high << 4;
    return (U8x16)U64x2{all, all};
  }
  PYTURBO_INLINE void entries(const uint8_t* from, F32* to) {
    scale_bytes(scale_codes(from), -32, half_at(from), to);
  }
};

// Values of half a block: the lowest two bits of 32 bytes, then the next, and so on.
template <typename V>
PYTURBO_INLINE V two_bits(const uint8_t* from, uint32_t at) {
  return moved(load_run<V>(from + at / 128 * 32 + at % 32), at % 128 / 32 * 2, 2, 3);
}

struct Q2_K {
  static constexpr uint32_t kType = 10, kBlock = 256, kBlockBytes = 84, kGroup = 16, kBits = 6;
  template <typename V>
  PYTURBO_INLINE V codes(const uint8_t* from, uint32_t at) {
    return two_bits<V>(from + 16, at);
  }
  static constexpr uint32_t kScales = 16, kMinima = 16;
  static constexpr uint32_t kFactor = 80, kLeast = 82, kScaleZero = 0;
  PYTURBO_INLINE U8x16 scale_codes(const uint8_t* from) { return load_vector<U8x16>(from) & 15; }
  PYTURBO_INLINE U8x16 minimum_codes(const uint8_t* from) { return load_vector<U8x16>(from) >> 4; }
  PYTURBO_INLINE void entries(const uint8_t* from, F32* to) {
    scale_bytes(scale_codes(from), 0, half_at(from + kFactor), to);
    scale_bytes(minimum_codes(from), 0, half_at(from + kLeast), to + 16 / kLanes);
  }
};

struct Q3_K {
  static constexpr uint32_t kType = 11, kBlock = 256, kBlockBytes = 110, kGroup = 16, kBits = 6, kZero = 4;
  template <typename V>
  PYTURBO_INLINE V codes(const uint8_t* from, uint32_t at) {
    return two_bits<V>(from + 32, at) | moved(load_run<V>(from + at % 32), int32_t(at / 32) - 2, 1, 1 << 2);
  }
  // Six bits for each of 16 scales: the low four in the nibbles of 8 bytes, the high two in 4 more.
  static constexpr uint32_t kScales = 16, kMinima = 0;
  static constexpr uint32_t kFactor = 108, kScaleZero = 32;
  PYTURBO_INLINE U8x16 scale_codes(const uint8_t* from) {
    const uint64_t low = load_vector<uint64_t>(from + 96);
    const uint32_t high = load_vector<uint32_t>(from + 104);
    const auto pairs = [&](uint32_t i) { return uint64_t((high >> (2 * i)) & 0x03030303) << 4; };
    constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;
    const U64x2 all = {(low & kNibbles) | pairs(0) | pairs(1) << 32,
                       ((low >> 4) & kNibbles) | pairs(2) | pairs(3) << 32};
    return (U8x16)all;
  }
  PYTURBO_INLINE void entries(const uint8_t* from, F32* to) {
    scale_bytes(scale_codes(from), -32, half_at(from + kFactor), to);
  }
};

// Six bits for each of 8 scales and 8 minima, after the halves that they are multiplied by. The first four of
// both are in the low bits of two words, whose high bits are the high two of the last four; a third word has
// their low four.
PYTURBO_INLINE U8x16 six_bits_by_four(const uint8_t* from) {  // four scales, four minima, and again
  const uint64_t first = load_vector<uint64_t>(from + 4), last = load_vector<uint32_t>(from + 12);
  return (U8x16)U64x2{first & 0x3f3f3f3f3f3f3f3f,
                      ((last | last << 28) & 0x0f0f0f0f0f0f0f0f) | (first >> 2 & 0x3030303030303030)};
}
PYTURBO_INLINE U8x16 six_bits(const uint8_t* from) {  // all scales, then all minima
  const auto by_four = (U32x4)six_bits_by_four(from);
  return (U8x16)U32x4{by_four[0], by_four[2], by_four[1], by_four[3]};
}

// The same as floats.
PYTURBO_INLINE void scales_and_minima(const uint8_t* from, F32* to) {
  F32 factors[16 / kLanes];
  if constexpr (kLanes == 16)
    factors[0] = first_lanes(8) ? half_at(from) : half_at(from + 2);
  else
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 16 / kLanes; ++i) factors[i] = half_at(from + (i < 8 / kLanes ? 0 : 2));
  scale_bytes(six_bits(from), 0, factors, to);
}

struct Q4_K {
  static constexpr uint32_t kType = 12, kBlock = 256, kBlockBytes = 144, kGroup = 32, kBits = 6;
  static constexpr uint32_t kRuns = 16;  // 32 bytes for each two groups
  template <typename V>
  PYTURBO_INLINE V codes(const uint8_t* from, uint32_t at) {
    return moved(load_run<V>(from + kRuns + at / 64 * 32 + at % 32), at % 64 / 32 * 4, 4, 15);
  }
  static constexpr uint32_t kScales = 8, kMinima = 8;
  static constexpr bool kSixBits = true;
  static constexpr uint32_t kFactor = 0, kLeast = 2, kScaleZero = 0;
  PYTURBO_INLINE U8x16 scale_codes(const uint8_t* from) { return six_bits_by_four(from); }
  PYTURBO_INLINE void entries(const uint8_t* from, F32* to) { scales_and_minima(from, to); }
};

struct Q5_K {
  static constexpr uint32_t kType = 13, kBlock = 256, kBlockBytes = 176, kGroup = 32, kBits = 6;
  static constexpr uint32_t kRuns = 48, kFifths = 16;  // a bit of 32 bytes for each group
  template <typename V>
  PYTURBO_INLINE V codes(const uint8_t* from, uint32_t at) {
    return moved(load_run<V>(from + kRuns + at / 64 * 32 + at % 32), at % 64 / 32 * 4, 4, 15) |
           moved(load_run<V>(from + kFifths + at % 32), int32_t(at / 32) - 4, 1, 1 << 4);
  }
  static constexpr uint32_t kScales = 8, kMinima = 8;
  static constexpr bool kSixBits = true;
  static constexpr uint32_t kFactor = 0, kLeast = 2, kScaleZero = 0;
  PYTURBO_INLINE U8x16 scale_codes(const uint8_t* from) { return six_bits_by_four(from); }
  PYTURBO_INLINE void entries(const uint8_t* from, F32* to) { scales_and_minima(from, to); }
};

struct Q6_K {
  static constexpr uint32_t kType = 14, kBlock = 256, kBlockBytes = 210, kGroup = 16, kBits = 6, kZero = 32;
  // A half of the block has 64 bytes with its low four bits, and 32 with its high two.
  template <typename V>
  PYTURBO_INLINE V codes(const uint8_t* from, uint32_t at) {
    const uint32_t half = at / 128, part = at % 128 / 32;
    if constexpr (sizeof(V) == 16)
      return six_bits_of(load_vector<V>(from + 64 * half + part % 2 * 32 + at % 32), part / 2 * 4,
                         load_vector<V>(from + 128 + 32 * half + at % 32), 2 * part);
    else
      return moved(load_vector<V>(from + 64 * half + part % 2 * 32 + at % 32), part / 2 * 4, 0, 15) |
             moved(load_run<V>(from + 128 + 32 * half + at % 32), 2 * int32_t(part) - 4, 2, 3 << 4);
  }
#if defined(__ARM_NEON)
  // Four times a code less kZero, as signed bytes: the highest of its six bits, inverted, is the sign.
  static constexpr uint32_t kTimes = 4;
  PYTURBO_INLINE U8x16 signed_codes(const uint8_t* from, uint32_t at) {
    const uint32_t half = at / 128, part = at % 128 / 32;
    const U8x16 high = load_vector<U8x16>(from + 128 + 32 * half + at % 32) ^ 0xaa;
    return upper_six_bits_of(load_vector<U8x16>(from + 64 * half + part % 2 * 32 + at % 32), part / 2 * 4,
                             high, 2 * part);
  }
#endif
  static constexpr uint32_t kScales = 16, kMinima = 0;
  static constexpr uint32_t kFactor = 208, kScaleZero = 128;
  PYTURBO_INLINE U8x16 scale_codes(const uint8_t* from) {
    return load_vector<U8x16>(from + 192) ^ 128;  // signed bytes
  }
  PYTURBO_INLINE void entries(const uint8_t* from, F32* to) {
    scale_bytes(scale_codes(from), -128, half_at(from + kFactor), to);
  }
};

// Types of blocks by GGML's numbers.
template <typename... T>
struct TypeList {
  static constexpr bool have(uint32_t type) { return ((T::kType == type) || ...); }

  // fn(T{}) for a type in the list; fn returns a pointer.
  template <typename Fn>
  static auto call(uint32_t type, const Fn& fn) {
    decltype(fn(Q4_K{})) found = {};
    ((T::kType == type ? void(found = fn(T{})) : void()), ...);
    return found;
  }
};

using GgufTypes = TypeList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Iq4Nl, Iq4Xs, Mxfp4>;

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
