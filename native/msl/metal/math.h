// Math on float, half and bfloat. The 16-bit types are computed in float and rounded once.
#pragma once

#include "metal/half.h"
#include "metal/limits.h"

// The functions of one, two and three floats; each list drives the 16-bit, the vector and the named forms.
// clang-format off
#define PYTURBO_MATH_UNARY(X)                                                                              \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(ceil) X(cos) X(cosh) X(exp) X(exp10) X(exp2)        \
  X(fabs) X(floor) X(log) X(log10) X(log2) X(rint) X(round) X(rsqrt) X(saturate) X(sign) X(sin) X(sinh)    \
  X(sqrt) X(tan) X(tanh) X(trunc)
// clang-format on
#define PYTURBO_MATH_BINARY(X) X(atan2) X(copysign) X(fdim) X(fmax) X(fmin) X(fmod) X(pow) X(powr) X(step)
#define PYTURBO_MATH_TERNARY(X) X(fma) X(mix) X(smoothstep)
#define PYTURBO_MATH_CLASSIFY(X) X(isfinite) X(isinf) X(isnan) X(isnormal) X(signbit)

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

#define PYTURBO_LIBM(name) \
  inline float name(float x) { return PYTURBO_BUILTIN(name##f)(x); }
PYTURBO_LIBM(acos)
PYTURBO_LIBM(acosh)
PYTURBO_LIBM(asin)
PYTURBO_LIBM(asinh)
PYTURBO_LIBM(atan)
PYTURBO_LIBM(atanh)
PYTURBO_LIBM(ceil)
PYTURBO_LIBM(cos)
PYTURBO_LIBM(cosh)
PYTURBO_LIBM(exp)
PYTURBO_LIBM(exp2)
PYTURBO_LIBM(fabs)
PYTURBO_LIBM(floor)
PYTURBO_LIBM(log)
PYTURBO_LIBM(log10)
PYTURBO_LIBM(log2)
PYTURBO_LIBM(rint)
PYTURBO_LIBM(round)
PYTURBO_LIBM(sin)
PYTURBO_LIBM(sinh)
PYTURBO_LIBM(sqrt)
PYTURBO_LIBM(tan)
PYTURBO_LIBM(tanh)
PYTURBO_LIBM(trunc)
#undef PYTURBO_LIBM

inline float exp10(float x) { return detail::exp10(x); }
inline float rsqrt(float x) { return detail::rsqrt(x); }
inline float atan2(float y, float x) { return PYTURBO_BUILTIN(atan2f)(y, x); }
inline float copysign(float x, float y) { return PYTURBO_BUILTIN(copysignf)(x, y); }
inline float fdim(float x, float y) { return PYTURBO_BUILTIN(fdimf)(x, y); }
inline float fmod(float x, float y) { return PYTURBO_BUILTIN(fmodf)(x, y); }
inline float pow(float x, float y) { return PYTURBO_BUILTIN(powf)(x, y); }
// Defined for x >= 0 only.
inline float powr(float x, float y) {
  return x < 0 ? numeric_limits<float>::quiet_NaN() : PYTURBO_BUILTIN(powf)(x, y);
}
inline float fma(float x, float y, float z) { return PYTURBO_BUILTIN(fmaf)(x, y, z); }

// When one argument is NaN, the result is the other.
inline float fmin(float x, float y) { return y < x || x != x ? y : x; }
inline float fmax(float x, float y) { return x < y || x != x ? y : x; }

inline float saturate(float x) { return fmin(fmax(x, 0.0f), 1.0f); }
// Keeps the sign of zero; 0 for NaN.
inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x != x ? 0.0f : x; }
inline float step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }
inline float mix(float x, float y, float a) { return x + (y - x) * a; }
inline float smoothstep(float low, float high, float x) {
  const float t = saturate((x - low) / (high - low));
  return t * t * (3.0f - 2.0f * t);
}

inline float ldexp(float x, int k) { return PYTURBO_BUILTIN(ldexpf)(x, k); }
inline float frexp(float x, int& exponent) { return PYTURBO_BUILTIN(frexpf)(x, &exponent); }
inline float modf(float x, float& whole) { return PYTURBO_BUILTIN(modff)(x, &whole); }
inline float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}

inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return fabs(x) == numeric_limits<float>::infinity(); }
inline bool isfinite(float x) { return fabs(x) < numeric_limits<float>::infinity(); }
inline bool isnormal(float x) { return isfinite(x) && fabs(x) >= numeric_limits<float>::min(); }
inline bool signbit(float x) { return detail::bit_cast<uint>(x) >> 31; }

#define PYTURBO_SMALL_UNARY(name) \
  inline PYTURBO_T name(PYTURBO_T x) { return PYTURBO_T(name(float(x))); }
#define PYTURBO_SMALL_BINARY(name) \
  inline PYTURBO_T name(PYTURBO_T x, PYTURBO_T y) { return PYTURBO_T(name(float(x), float(y))); }
#define PYTURBO_SMALL_TERNARY(name)                              \
  inline PYTURBO_T name(PYTURBO_T x, PYTURBO_T y, PYTURBO_T z) { \
    return PYTURBO_T(name(float(x), float(y), float(z)));        \
  }

#define PYTURBO_T half
PYTURBO_MATH_UNARY(PYTURBO_SMALL_UNARY)
PYTURBO_MATH_BINARY(PYTURBO_SMALL_BINARY)
PYTURBO_MATH_TERNARY(PYTURBO_SMALL_TERNARY)
#undef PYTURBO_T
#define PYTURBO_T bfloat
PYTURBO_MATH_UNARY(PYTURBO_SMALL_UNARY)
PYTURBO_MATH_BINARY(PYTURBO_SMALL_BINARY)
PYTURBO_MATH_TERNARY(PYTURBO_SMALL_TERNARY)
#undef PYTURBO_T
#undef PYTURBO_SMALL_UNARY
#undef PYTURBO_SMALL_BINARY
#undef PYTURBO_SMALL_TERNARY

#define PYTURBO_SMALL_FUNCTIONS(T)                                                         \
  inline T ldexp(T x, int k) { return T(ldexp(float(x), k)); }                             \
  inline T frexp(T x, int& exponent) { return T(frexp(float(x), exponent)); }              \
  inline T modf(T x, T& whole) {                                                           \
    float w;                                                                               \
    const float fraction = modf(float(x), w);                                              \
    whole = T(w);                                                                          \
    return T(fraction);                                                                    \
  }                                                                                        \
  inline T sincos(T x, T& cosine) {                                                        \
    cosine = cos(x);                                                                       \
    return sin(x);                                                                         \
  }                                                                                        \
  inline bool isnan(T x) { return isnan(float(x)); }                                       \
  inline bool isinf(T x) { return isinf(float(x)); }                                       \
  inline bool isfinite(T x) { return isfinite(float(x)); }                                 \
  inline bool isnormal(T x) { return isfinite(x) && fabs(x) >= numeric_limits<T>::min(); } \
  inline bool signbit(T x) { return x.bits >> 15; }
PYTURBO_SMALL_FUNCTIONS(half)
PYTURBO_SMALL_FUNCTIONS(bfloat)
#undef PYTURBO_SMALL_FUNCTIONS

// Functions common to the three types. fract stays below one.
#define PYTURBO_FLOATING_FUNCTIONS(T, below_one)                          \
  inline T fract(T x) {                                                   \
    const T fraction = T(float(x) - floor(float(x)));                     \
    return fraction == 1.0f ? below_one : isinf(x) ? T(0) : fraction;     \
  }                                                                       \
  inline T abs(T x) { return fabs(x); }                                   \
  inline T min(T x, T y) { return fmin(x, y); }                           \
  inline T max(T x, T y) { return fmax(x, y); }                           \
  inline T clamp(T x, T low, T high) { return fmin(fmax(x, low), high); } \
  inline T select(T a, T b, bool condition) { return condition ? b : a; }
PYTURBO_FLOATING_FUNCTIONS(float, 0x1.fffffep-1f)
PYTURBO_FLOATING_FUNCTIONS(half, half::from_bits(0x3bff))
PYTURBO_FLOATING_FUNCTIONS(bfloat, bfloat::from_bits(0x3f7f))
#undef PYTURBO_FLOATING_FUNCTIONS

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
