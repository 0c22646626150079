// Integer functions on scalars. Overloads, not templates: a call with mixed types is ambiguous, as in Metal.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

template <typename T>
struct Unsigned {
  using type = T;
};
#define PYTURBO_UNSIGNED(T, U) \
  template <>                  \
  struct Unsigned<T> {         \
    using type = U;            \
  };
PYTURBO_UNSIGNED(char, uchar)
PYTURBO_UNSIGNED(signed char, uchar)
PYTURBO_UNSIGNED(short, ushort)
PYTURBO_UNSIGNED(int, uint)
PYTURBO_UNSIGNED(long, ulong)
PYTURBO_UNSIGNED(long long, unsigned long long)
#undef PYTURBO_UNSIGNED
template <typename T>
using unsigned_t = typename Unsigned<T>::type;

template <typename T>
inline constexpr uint bit_count = sizeof(T) * 8;

template <typename T>
constexpr T abs(T value) {
  return value < T(0) ? T(0 - unsigned_t<T>(value)) : value;
}

template <typename T>
constexpr unsigned_t<T> absdiff(T a, T b) {
  using U = unsigned_t<T>;
  return a < b ? U(U(b) - U(a)) : U(U(a) - U(b));
}

template <typename T>
constexpr T popcount(T value) {
  return T(count_ones(unsigned_t<T>(value)));
}

// Zero gives the number of bits.
template <typename T>
constexpr T clz(T value) {
  return T(value ? leading_zeros(unsigned_t<T>(value)) - int(64 - bit_count<T>) : int(bit_count<T>));
}

template <typename T>
constexpr T ctz(T value) {
  return T(value ? trailing_zeros(unsigned_t<T>(value)) : int(bit_count<T>));
}

template <typename T>
constexpr T reverse_bits(T value) {
  uint64_t source = unsigned_t<T>(value), result = 0;
  for (uint i = 0; i < bit_count<T>; ++i, source >>= 1) result = result << 1 | (source & 1);
  return T(result);
}

template <typename T>
constexpr T rotate(T value, T count) {
  using U = unsigned_t<T>;
  const uint left = uint(count) & (bit_count<T> - 1), right = (bit_count<T> - left) & (bit_count<T> - 1);
  return T(U(U(value) << left) | U(U(value) >> right));
}

template <typename T>
constexpr T mulhi(T a, T b) {
  using Wide = conditional_t<(T(-1) < T(0)), int64_t, uint64_t>;
  if constexpr (sizeof(T) == sizeof(Wide))
    return T(high_product(Wide(a), Wide(b)));
  else
    return T(Wide(a) * Wide(b) >> bit_count<T>);
}

template <typename T>
constexpr unsigned_t<T> low_bits(uint count) {
  return unsigned_t<T>(count ? ~uint64_t(0) >> (64 - count) : 0);
}

// The caller ensures that offset + bits <= width, as in Metal.
template <typename T>
constexpr T extract_bits(T value, uint offset, uint bits) {
  using U = unsigned_t<T>;
  if (bits == 0) return T(0);
  const U field = U(U(value) >> offset) & low_bits<T>(bits);
  const bool negative = T(-1) < T(0) && (field >> (bits - 1) & 1u);
  return T(negative ? U(field | U(~low_bits<T>(bits))) : field);
}

template <typename T>
constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  using U = unsigned_t<T>;
  if (bits == 0) return base;
  const U mask = U(low_bits<T>(bits) << offset);
  return T((U(base) & U(~mask)) | (U(U(insert) << offset) & mask));
}

}  // namespace detail

#define PYTURBO_INTEGER_FUNCTIONS(T)                                                  \
  constexpr T min(T a, T b) { return b < a ? b : a; }                                 \
  constexpr T max(T a, T b) { return a < b ? b : a; }                                 \
  constexpr T clamp(T value, T low, T high) { return min(max(value, low), high); }    \
  constexpr T abs(T value) { return detail::abs(value); }                             \
  constexpr detail::unsigned_t<T> absdiff(T a, T b) { return detail::absdiff(a, b); } \
  constexpr T popcount(T value) { return detail::popcount(value); }                   \
  constexpr T clz(T value) { return detail::clz(value); }                             \
  constexpr T ctz(T value) { return detail::ctz(value); }                             \
  constexpr T mulhi(T a, T b) { return detail::mulhi(a, b); }                         \
  constexpr T reverse_bits(T value) { return detail::reverse_bits(value); }           \
  constexpr T rotate(T value, T count) { return detail::rotate(value, count); }       \
  constexpr T extract_bits(T value, uint offset, uint bits) {                         \
    return detail::extract_bits(value, offset, bits);                                 \
  }                                                                                   \
  constexpr T insert_bits(T base, T insert, uint offset, uint bits) {                 \
    return detail::insert_bits(base, insert, offset, bits);                           \
  }                                                                                   \
  constexpr T select(T a, T b, bool condition) { return condition ? b : a; }

PYTURBO_INTEGER_FUNCTIONS(char)
PYTURBO_INTEGER_FUNCTIONS(signed char)
PYTURBO_INTEGER_FUNCTIONS(uchar)
PYTURBO_INTEGER_FUNCTIONS(short)
PYTURBO_INTEGER_FUNCTIONS(ushort)
PYTURBO_INTEGER_FUNCTIONS(int)
PYTURBO_INTEGER_FUNCTIONS(uint)
PYTURBO_INTEGER_FUNCTIONS(long)
PYTURBO_INTEGER_FUNCTIONS(ulong)
PYTURBO_INTEGER_FUNCTIONS(long long)
PYTURBO_INTEGER_FUNCTIONS(unsigned long long)
#undef PYTURBO_INTEGER_FUNCTIONS

// Only the low 24 bits of x and y are used; the sum is modulo 2^32.
constexpr uint mul24(uint x, uint y) { return (x & 0xffffffu) * (y & 0xffffffu); }
constexpr int mul24(int x, int y) { return int(uint(int(uint(x) << 8) >> 8) * uint(int(uint(y) << 8) >> 8)); }
constexpr uint mad24(uint x, uint y, uint z) { return mul24(x, y) + z; }
constexpr int mad24(int x, int y, int z) { return int(uint(mul24(x, y)) + uint(z)); }

constexpr bool select(bool a, bool b, bool condition) { return condition ? b : a; }
constexpr bool any(bool value) { return value; }
constexpr bool all(bool value) { return value; }

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
