// The thin vector layer: the vector operations of bodies, under the same names for every level (levels.h).
// Arithmetic on vectors is written with the compiler's own operators. A source of this folder is compiled
// once per level with PYTURBO_LEVEL set to its name; nothing here may be shared between levels, so these
// files use no inline functions of the standard library.
#pragma once

#include <cstdint>
#include <cstring>

#include "pyturbo/arguments.h"

#ifndef PYTURBO_LEVEL
#error "PYTURBO_LEVEL: expected the name of a level"
#endif

#define PYTURBO_INLINE [[gnu::always_inline]] static inline

namespace pyturbo::cpu::PYTURBO_LEVEL {
// Vectors of one size at every level.
typedef uint8_t U8x16 __attribute__((vector_size(16)));
typedef uint8_t U8x32 __attribute__((vector_size(32)));
}  // namespace pyturbo::cpu::PYTURBO_LEVEL

#if defined(__AVX512BW__)
#include "cpu/kernels/vector_avx512.h"
#elif defined(__AVX2__)
#include "cpu/kernels/vector_avx2.h"
#elif defined(__ARM_NEON)
#include "cpu/kernels/vector_neon.h"
#else
#error "PYTURBO_LEVEL: expected a level that this folder has a vector layer for"
#endif

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Whether dot products of bytes are so fast that tiles of them, with a scale for 32 values or more, take less
// time than rows from 8 tokens on, and than floats up to 63 with default precision.
constexpr bool kFastIntegers = kPlanesAtOnce > 1 && !kDotsInPairs;

constexpr uint32_t kLine = 64;  // bytes of a cache line

// 8-bit floats of quantised formats (shaders/fp/fp.h).
struct E4M3 {
  uint8_t bits;
};
struct E8M0 {
  uint8_t bits;
};

// Vectors at any address.
template <typename V>
PYTURBO_INLINE V load_vector(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename V>
PYTURBO_INLINE void store_vector(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// Four bytes in every lane.
PYTURBO_INLINE S8 splat_word(const int8_t* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof word);
  return (S8)(I32{} + word);
}

PYTURBO_INLINE F32 to_float(I32 v) { return __builtin_convertvector(v, F32); }
#if !defined(__ARM_NEON)
PYTURBO_INLINE F32 small_to_float(I32 v) { return to_float(v); }
// The high 16 bits of each word.
PYTURBO_INLINE U16Half upper_halves(U32 words) { return lower_halves(words >> 16); }
#endif
PYTURBO_INLINE S8Quarter low_bytes(I32 v) { return __builtin_convertvector(v, S8Quarter); }

// kLanes floats from each type they are stored in.
PYTURBO_INLINE F32 load_floats(const float* from) { return load_vector<F32>(from); }
PYTURBO_INLINE F32 load_floats(const Half* from) { return from_half(load_vector<U16Half>(from)); }
PYTURBO_INLINE F32 load_floats(const BFloat* from) { return from_bfloat(load_vector<U16Half>(from)); }
PYTURBO_INLINE F32 load_floats(const int8_t* from) { return __builtin_convertvector(widen_twice(from), F32); }

// E4M3 codes, as signed bytes, over kE4m3Unit: halves of the same bits, subnormal ones too. 0x7f and 0xff are
// NaN.
constexpr float kE4m3Unit = 256;
template <typename V>
PYTURBO_INLINE V e4m3_halves(V codes) {
  return ((codes << 7) & 0xbf80) | (V)((codes & 0x7f) == 0x7f);
}

PYTURBO_INLINE F32 from_e4m3(U16Half codes) { return from_half(e4m3_halves(codes)) * kE4m3Unit; }
PYTURBO_INLINE F32 load_floats(const E4M3* from) { return from_e4m3(widen(from)); }

PYTURBO_INLINE F32 load_floats(const E8M0* from) {  // the exponent of a bfloat; 0 is 2^-127, 255 NaN
  const U16Half codes = widen(from);
  const U16Half outermost = (U16Half)(((codes + 1) & 0xfe) == 0);
  return from_bfloat(((codes << 7) & 0x7f80) | (outermost & 0x0040));
}

// All ones in the first `count` lanes, zeros in the others.
PYTURBO_INLINE I32 first_lanes(uint32_t count) {
  I32 lane;
  for (uint32_t i = 0; i < kLanes; ++i) lane[i] = int32_t(i);
  return lane < int32_t(count);
}

// The first `count` < kLanes of them, the others zero. `readable` values may be read from there.
template <typename S>
PYTURBO_INLINE F32 load_floats(const S* from, uint32_t count, uint64_t readable) {
  S values[kLanes] = {};
  if (readable < kLanes) {
    for (uint32_t i = 0; i < count; ++i) values[i] = from[i];
    from = values;
  }
  return (F32)((I32)load_floats(from) & first_lanes(count));
}

PYTURBO_INLINE void store_floats(float* to, F32 v) { store_vector(to, v); }
PYTURBO_INLINE void store_floats(Half* to, F32 v) { store_vector(to, to_half(v)); }
PYTURBO_INLINE void store_floats(BFloat* to, F32 v) {  // nearest, ties to even; NaN stays NaN
  const U32 bits = (U32)v;
  const U32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  store_vector(to, __builtin_convertvector(v == v ? rounded : (bits >> 16) | 0x40, U16Half));
}

// Bits of |v|, which order floats as integers: finite, then inf, then NaN.
PYTURBO_INLINE I32 magnitude(F32 v) { return (I32)v & 0x7fffffff; }
PYTURBO_INLINE I32 larger(I32 a, I32 b) { return a > b ? a : b; }

// The largest of floats that are numbers.
PYTURBO_INLINE float largest(F32 v) {
  const I32 bits = (I32)v;
  const int32_t key = largest(bits ^ ((bits >> 31) & 0x7fffffff));  // integers in the order of the floats
  const int32_t most = key ^ ((key >> 31) & 0x7fffffff);
  float value;
  std::memcpy(&value, &most, sizeof value);
  return value;
}

// Whether a comparison is true in a lane.
PYTURBO_INLINE bool any(I32 lanes) { return largest(lanes & 1) != 0; }

PYTURBO_INLINE constexpr uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
PYTURBO_INLINE constexpr uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
