// What the C++ compiler gives <metal_stdlib>: integer types, functions of its library, the bits of values.
#pragma once

#include <float.h>
#include <limits.h>

#include <cstddef>
#include <cstdint>

// A function of the C library, or one that only the compiler has.
#define PYTURBO_BUILTIN(name) __builtin_##name

// The place of a call in a shader, as a default argument: lanes that wait at different sites are divergent.
#define PYTURBO_SITE __builtin_LINE()

// The type that MSL calls char.
#define PYTURBO_CHAR char
static_assert(char(-1) < 0, "kernels need -fsigned-char");

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;

namespace detail {

template <typename T, typename U>
constexpr T bit_cast(U value) {
  return __builtin_bit_cast(T, value);
}

// The zeros of 0 are undefined.
constexpr int count_ones(uint64_t value) { return __builtin_popcountll(value); }
constexpr int leading_zeros(uint64_t value) { return __builtin_clzll(value); }
constexpr int trailing_zeros(uint64_t value) { return __builtin_ctzll(value); }

// The upper half of the product of 64-bit integers.
constexpr int64_t high_product(int64_t a, int64_t b) { return int64_t(__int128(a) * b >> 64); }
constexpr uint64_t high_product(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)(a)*b >> 64); }

// Correctly rounded, up to the double rounding.
inline float rsqrt(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
inline float exp10(float x) { return float(__builtin_pow(10.0, double(x))); }

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
