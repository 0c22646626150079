// numeric_limits, and the macros of <metal_numeric_limits> and <metal_math>.
#pragma once

#include "metal/half.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

template <typename T>
struct numeric_limits {
  static constexpr bool is_specialized = false;
};

template <detail::Integer T>
struct numeric_limits<T> {
  static constexpr bool is_specialized = true, is_integer = true, is_exact = true, has_infinity = false;
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr int radix = 2, digits = is_same_v<T, bool> ? 1 : int(sizeof(T)) * 8 - is_signed;
  static constexpr T max() { return is_same_v<T, bool> ? T(1) : T(~uint64_t(0) >> (64 - digits)); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
};

// The least negative exponent is given by the smallest normal number, digits by epsilon = 2^(1 - digits).
#define PYTURBO_LIMITS(T, digits_, max_, min_, epsilon_, infinity_, nan_, denorm_)                       \
  template <>                                                                                            \
  struct numeric_limits<T> {                                                                             \
    static constexpr bool is_specialized = true, is_integer = false, is_exact = false, is_signed = true; \
    static constexpr bool has_infinity = true, has_quiet_NaN = true;                                     \
    static constexpr int radix = 2, digits = digits_;                                                    \
    static constexpr T max() { return max_; }                                                            \
    static constexpr T min() { return min_; }                                                            \
    static constexpr T lowest() { return -max(); }                                                       \
    static constexpr T epsilon() { return epsilon_; }                                                    \
    static constexpr T round_error() { return T(0.5f); }                                                 \
    static constexpr T infinity() { return infinity_; }                                                  \
    static constexpr T quiet_NaN() { return nan_; }                                                      \
    static constexpr T denorm_min() { return denorm_; }                                                  \
  };
PYTURBO_LIMITS(float, 24, 0x1.fffffep127f, 0x1p-126f, 0x1p-23f, detail::bit_cast<float>(0x7f800000u),
               detail::bit_cast<float>(0x7fc00000u), 0x1p-149f)
PYTURBO_LIMITS(half, 11, half::from_bits(0x7bff), half::from_bits(0x0400), half::from_bits(0x1400),
               half::from_bits(0x7c00), half::from_bits(0x7e00), half::from_bits(0x0001))
PYTURBO_LIMITS(bfloat, 8, bfloat::from_bits(0x7f7f), bfloat::from_bits(0x0080), bfloat::from_bits(0x3c00),
               bfloat::from_bits(0x7f80), bfloat::from_bits(0x7fc0), bfloat::from_bits(0x0001))
#undef PYTURBO_LIMITS

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal

#ifndef INFINITY
#define INFINITY (::msl::metal::numeric_limits<float>::infinity())
#endif
#ifndef NAN
#define NAN (::msl::metal::numeric_limits<float>::quiet_NaN())
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#endif
#ifndef MAXFLOAT
#define MAXFLOAT FLT_MAX
#endif

#define M_E_F 2.71828182845904523536028747135266250f
#define M_LOG2E_F 1.44269504088896340735992468100189214f
#define M_LOG10E_F 0.434294481903251827651128918916605082f
#define M_LN2_F 0.693147180559945309417232121458176568f
#define M_LN10_F 2.30258509299404568401799145468436421f
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_PI_2_F 1.57079632679489661923132169163975144f
#define M_PI_4_F 0.785398163397448309615660845819875721f
#define M_1_PI_F 0.318309886183790671537767526745028724f
#define M_2_PI_F 0.636619772367581343075535053490057448f
#define M_2_SQRTPI_F 1.12837916709551257389615890312154517f
#define M_SQRT2_F 1.41421356237309504880168872420969808f
#define M_SQRT1_2_F 0.707106781186547524400844362104849039f

#define HALF_MAX (::msl::metal::numeric_limits<::msl::metal::half>::max())
#define HALF_MIN (::msl::metal::numeric_limits<::msl::metal::half>::min())
#define HALF_EPSILON (::msl::metal::numeric_limits<::msl::metal::half>::epsilon())
#define MAXHALF HALF_MAX
#define HUGE_VALH (::msl::metal::numeric_limits<::msl::metal::half>::infinity())
#define M_E_H (::msl::metal::half(2.71828182845904523536028747135266250))
#define M_LN2_H (::msl::metal::half(0.693147180559945309417232121458176568))
#define M_PI_H (::msl::metal::half(3.14159265358979323846264338327950288))
#define M_SQRT2_H (::msl::metal::half(1.41421356237309504880168872420969808))

#define BFLOAT_MAX (::msl::metal::numeric_limits<::msl::metal::bfloat>::max())
#define BFLOAT_MIN (::msl::metal::numeric_limits<::msl::metal::bfloat>::min())
#define BFLOAT_EPSILON (::msl::metal::numeric_limits<::msl::metal::bfloat>::epsilon())
