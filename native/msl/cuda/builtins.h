// What NVRTC gives <metal_stdlib>: integer types, functions of its library, the bits of values.
#pragma once

// A function of CUDA's library.
#define PYTURBO_BUILTIN(name) ::name

// Lanes that diverge are the hardware's concern: no function needs to know its place.
#define PYTURBO_SITE 0

#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-SCHAR_MAX - 1)
#define UCHAR_MAX 255
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define SHRT_MAX 32767
#define SHRT_MIN (-SHRT_MAX - 1)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 18446744073709551615ul
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f

// The type that MSL calls char; that of NVRTC has no sign where the host's has none.
#define PYTURBO_CHAR signed char

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using size_t = decltype(sizeof(0));
using ptrdiff_t = long;

namespace detail {

template <typename T, typename U>
constexpr T bit_cast(U value) {
  return __builtin_bit_cast(T, value);
}

// The zeros of 0 are undefined.
constexpr int count_ones(uint64_t value) { return ::__popcll(value); }
constexpr int leading_zeros(uint64_t value) { return ::__clzll(value); }
constexpr int trailing_zeros(uint64_t value) { return ::__ffsll(value) - 1; }

// The upper half of the product of 64-bit integers.
constexpr int64_t high_product(int64_t a, int64_t b) { return ::__mul64hi(a, b); }
constexpr uint64_t high_product(uint64_t a, uint64_t b) { return ::__umul64hi(a, b); }

// Correctly rounded.
inline float rsqrt(float x) { return ::__frsqrt_rn(x); }
inline float exp10(float x) { return ::exp10f(x); }

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
