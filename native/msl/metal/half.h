// half and bfloat: 16 bits of storage, arithmetic in float with one rounding (to nearest, ties to even).
#pragma once

#include "half_formats.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// A float that rounds to 16 bits as `value` itself would: rounded to odd where it is not exact.
template <Real T>
constexpr float float_to_odd(T value) {
  const float nearest = float(value);
  const uint32_t word = bit_cast<uint32_t>(nearest);
  const bool infinite = (word & 0x7fffffffu) == 0x7f800000u;
  if (T(nearest) == value || value != value || infinite || (word & 1u)) return nearest;
  const bool larger = nearest < 0 ? T(nearest) < value : T(nearest) > value;
  return bit_cast<float>(larger ? word - 1 : word + 1);
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

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
