// half and bfloat: 16 bits of storage, arithmetic in float with one rounding (to nearest, ties to even).
#pragma once

#include "metal/type_traits.h"

namespace metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// IEEE binary16. A signalling NaN becomes quiet when a float is encoded, never when a half is decoded.
struct HalfFormat {
  static constexpr float decode(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return __builtin_bit_cast(float, sign | 0x7f800000u | magnitude << 13);
    const float value = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;  // exponent bias 15 -> 127
    return sign ? -value : value;
  }
  static constexpr uint16_t encode(float value) {
    const uint32_t word = __builtin_bit_cast(uint32_t, value);
    const uint32_t sign = word >> 16 & 0x8000u, magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and above round to infinity
    if (magnitude < 0x38800000u) {                                  // below 2^-14: the ulp of 0.5f is 2^-24
      const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
      return uint16_t(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return uint16_t(sign | (rounded - 0x38000000u) >> 13);
  }
};

// The upper half of a float.
struct BfloatFormat {
  static constexpr float decode(uint16_t bits) { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
  static constexpr uint16_t encode(float value) {
    const uint32_t word = __builtin_bit_cast(uint32_t, value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return uint16_t(word >> 16 | 0x40u);
    return uint16_t((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
};

// A float that rounds to 16 bits as `value` itself would: rounded to odd where it is not exact.
template <Real T>
constexpr float float_to_odd(T value) {
  const float nearest = float(value);
  const uint32_t word = __builtin_bit_cast(uint32_t, nearest);
  const bool infinite = (word & 0x7fffffffu) == 0x7f800000u;
  if (T(nearest) == value || value != value || infinite || (word & 1u)) return nearest;
  const bool larger = nearest < 0 ? T(nearest) < value : T(nearest) > value;
  return __builtin_bit_cast(float, larger ? word - 1 : word + 1);
}

template <Integer T>
constexpr float float_to_odd(T value) {
  const bool negative = value < T(0);
  uint64_t magnitude = negative ? 0 - uint64_t(value) : uint64_t(value);
  float scale = negative ? -1.0f : 1.0f;
  for (; magnitude >= 1u << 24; scale *= 2) magnitude = magnitude >> 1 | (magnitude & 1u);
  return float(uint32_t(magnitude)) * scale;
}

template <typename Format>
struct SmallFloat {
  uint16_t bits;

  SmallFloat() = default;
  constexpr SmallFloat(float value) : bits(Format::encode(value)) {}
  template <Integer T>
  constexpr SmallFloat(T value) : bits(Format::encode(float_to_odd(value))) {}
  template <Real T>
  constexpr SmallFloat(T value) : bits(Format::encode(float_to_odd(value))) {}

  static constexpr SmallFloat from_bits(uint16_t bits) {
    SmallFloat value;
    value.bits = bits;
    return value;
  }
  // Also what the built-in comparisons use.
  constexpr operator float() const { return Format::decode(bits); }

  friend constexpr SmallFloat operator+(SmallFloat a) { return a; }
  friend constexpr SmallFloat operator-(SmallFloat a) { return from_bits(a.bits ^ 0x8000u); }

#define PYTURBO_ARITHMETIC(op)                                                                         \
  friend constexpr SmallFloat operator op(SmallFloat a, SmallFloat b) { return float(a) op float(b); } \
  template <Integer T>                                                                                 \
  friend constexpr SmallFloat operator op(SmallFloat a, T b) {                                         \
    return a op SmallFloat(b);                                                                         \
  }                                                                                                    \
  template <Integer T>                                                                                 \
  friend constexpr SmallFloat operator op(T a, SmallFloat b) {                                         \
    return SmallFloat(a) op b;                                                                         \
  }                                                                                                    \
  template <Real T>                                                                                    \
  friend constexpr float operator op(SmallFloat a, T b) {                                              \
    return float(a) op float(b);                                                                       \
  }                                                                                                    \
  template <Real T>                                                                                    \
  friend constexpr float operator op(T a, SmallFloat b) {                                              \
    return float(a) op float(b);                                                                       \
  }                                                                                                    \
  template <Scalar T>                                                                                  \
  constexpr SmallFloat& operator op##=(T b) {                                                          \
    return *this = SmallFloat(*this op b);                                                             \
  }
  PYTURBO_ARITHMETIC(+)
  PYTURBO_ARITHMETIC(-)
  PYTURBO_ARITHMETIC(*)
  PYTURBO_ARITHMETIC(/)
#undef PYTURBO_ARITHMETIC
};

}  // namespace detail

using half = detail::SmallFloat<detail::HalfFormat>;
using bfloat = detail::SmallFloat<detail::BfloatFormat>;

static_assert(sizeof(half) == 2 && sizeof(bfloat) == 2);

// Clang lexes 0.5h but no other suffix of MSL.
#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wuser-defined-literals"
#else
#pragma GCC diagnostic ignored "-Wliteral-suffix"
constexpr half operator"" H(long double value) { return half(value); }
constexpr bfloat operator"" bf(long double value) { return bfloat(value); }
constexpr bfloat operator"" BF(long double value) { return bfloat(value); }
#endif
constexpr half operator""h(long double value) { return half(value); }
#pragma GCC diagnostic pop

}  // namespace PYTURBO_VARIANT
}  // namespace metal
