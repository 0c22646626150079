// <metal_stdlib> on the host: 16-bit floats, vectors, integer and math functions. What needs a running
// simdgroup (simd functions, barriers, matrices) is tested through kernels, not here.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "native_test.h"

#include <metal_stdlib>

namespace {

using namespace msl;  // as a shader is
using metal::fract;

// The front end gives such literals of shaders their type.
#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wuser-defined-literals"
#else
#pragma GCC diagnostic ignored "-Wliteral-suffix"
#endif
constexpr half operator""h(long double value) { return half(double(value)); }
#pragma GCC diagnostic pop

// Value of a binary format with `exponent_bits`, from the definition. Finite values only.
double exact_value(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int scale = (exponent ? exponent : 1) - bias - mantissa_bits;
  const double magnitude = std::ldexp(double(mantissa + (exponent ? 1 << mantissa_bits : 0)), scale);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The nearest value by search over all of them, ties to the even pattern; past the largest: half an ulp more.
uint16_t exact_round(double value, int exponent_bits) {
  const uint16_t infinity = uint16_t(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  uint16_t low = 0, high = infinity;  // low <= magnitude < high, infinity standing for the next power of two
  const auto at = [&](uint16_t bits) {
    return bits == infinity ? std::ldexp(1.0, 1 << (exponent_bits - 1)) : exact_value(bits, exponent_bits);
  };
  if (magnitude >= at(infinity)) return sign | infinity;
  while (high - low > 1) {
    const uint16_t middle = uint16_t((low + high) / 2);
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - at(low), above = at(high) - magnitude;
  const bool up = above < below || (above == below && (low & 1));
  return sign | (up ? high : low);
}

template <typename T>
constexpr int kExponentBits = metal::is_same_v<T, half> ? 5 : 8;

template <typename T>
bool is_nan_pattern(uint16_t bits) {
  return (bits & 0x7fff) > metal::numeric_limits<T>::infinity().bits;
}

template <typename T>
void check_all_patterns() {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const uint16_t bits = uint16_t(pattern);
    const float value = T::from_bits(bits);
    if (is_nan_pattern<T>(bits)) {
      CHECK(std::isnan(value));
      CHECK(is_nan_pattern<T>(T(value).bits));
      CHECK_EQ(T(value).bits >> 15, bits >> 15);
      continue;
    }
    if ((bits & 0x7fff) == metal::numeric_limits<T>::infinity().bits)
      CHECK(std::isinf(value));
    else
      CHECK_EQ(double(value), exact_value(bits, kExponentBits<T>));
    CHECK_EQ(std::signbit(value), bool(bits >> 15));
    CHECK_EQ(T(value).bits, bits);
  }
}

// Around every value and every midpoint between neighbours: the point itself and the floats next to it.
template <typename T>
void check_rounding() {
  const uint16_t infinity = metal::numeric_limits<T>::infinity().bits;
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const double here = exact_value(bits, kExponentBits<T>);
    const double next = bits + 1 == infinity ? here + (here - exact_value(bits - 1, kExponentBits<T>))
                                             : exact_value(bits + 1, kExponentBits<T>);
    for (const double point : {here, (here + next) / 2}) {
      const float exact = float(point);
      CHECK_EQ(double(exact), point);
      for (const float value : {exact, std::nextafter(exact, 0.0f), std::nextafter(exact, INFINITY)}) {
        CHECK_EQ(T(value).bits, exact_round(value, kExponentBits<T>));
        CHECK_EQ(T(-value).bits, exact_round(-value, kExponentBits<T>));
      }
      // A double this close to a tie would round wrongly by way of the nearest float.
      for (const double value : {std::nextafter(point, 0.0), std::nextafter(point, HUGE_VAL)})
        CHECK_EQ(T(value).bits, exact_round(value, kExponentBits<T>));
    }
  }
  CHECK_EQ(T(INFINITY).bits, infinity);
  CHECK_EQ(T(-INFINITY).bits, infinity | 0x8000);
  CHECK_EQ(T(3.4e38f).bits, exact_round(3.4e38f, kExponentBits<T>));
  CHECK(is_nan_pattern<T>(T(NAN).bits));
}

// What the exact result of the operation rounds to; +, - and * of two 16-bit floats are exact in double
// when the exponents are close.
template <typename T>
void check_arithmetic() {
  uint32_t state = 12345;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    const uint16_t near_one = T(1.0f).bits;
    const T a = T::from_bits(uint16_t(near_one + (state >> 8 & 0xfff) - 0x800));
    const T b = T::from_bits(uint16_t((near_one + (state >> 20) - 0x800) ^ (state & 0x80 ? 0x8000 : 0)));
    const double x = float(a), y = float(b);
    if (!std::isfinite(x) || !std::isfinite(y) || y == 0) continue;
    CHECK_EQ((a * b).bits, exact_round(x * y, kExponentBits<T>));
    if (std::fabs(std::log2(std::fabs(x / y))) < 24) {
      if (x + y != 0) CHECK_EQ((a + b).bits, exact_round(x + y, kExponentBits<T>));
      if (x - y != 0) CHECK_EQ((a - b).bits, exact_round(x - y, kExponentBits<T>));
      CHECK_EQ((a / b).bits, exact_round(x / y, kExponentBits<T>));
    }
    CHECK_EQ(a < b, x < y);
    CHECK_EQ(a == b, x == y);
  }
}

template <typename T>
void check_integers() {
  for (int64_t value = -70000; value <= 70000; ++value)
    CHECK_EQ(T(int(value)).bits, exact_round(double(value), kExponentBits<T>));
  for (int shift = 0; shift < 62; ++shift) {
    for (int64_t offset : {-1, 0, 1}) {
      for (int64_t value : {(int64_t(257) << shift) + offset, (int64_t(259) << shift) + offset}) {
        if (shift >= 54) continue;
        // Only 52 bits are exact in double; below the ninth bit one sticky bit decides.
        if (value >> 52 == 0) CHECK_EQ(T(value).bits, exact_round(double(value), kExponentBits<T>));
        if (value >> 52 == 0) CHECK_EQ(T(-value).bits, exact_round(-double(value), kExponentBits<T>));
      }
    }
  }
}

template <typename T, typename U>
constexpr bool has_type(const U&) {
  return metal::is_same_v<T, U>;
}

}  // namespace

NATIVE_TEST(half_patterns) { check_all_patterns<half>(); }
NATIVE_TEST(bfloat_patterns) { check_all_patterns<bfloat>(); }
NATIVE_TEST(half_rounding) { check_rounding<half>(); }
NATIVE_TEST(bfloat_rounding) { check_rounding<bfloat>(); }
NATIVE_TEST(half_arithmetic) { check_arithmetic<half>(); }
NATIVE_TEST(bfloat_arithmetic) { check_arithmetic<bfloat>(); }
NATIVE_TEST(half_from_integers) { check_integers<half>(); }

NATIVE_TEST(bfloat_from_integers) {
  check_integers<bfloat>();
  // 2^62 + 2^54 is a tie between neighbours; one more decides, though a double cannot hold it.
  CHECK_EQ(bfloat((int64_t(1) << 62) + (int64_t(1) << 54)).bits, bfloat(0x1p62f).bits);
  CHECK_EQ(bfloat((int64_t(1) << 62) + (int64_t(1) << 54) + 1).bits, bfloat(0x1p62f).bits + 1);
  CHECK_EQ(bfloat(INT64_MIN).bits, bfloat(-0x1p63f).bits);
  CHECK_EQ(bfloat(UINT64_MAX).bits, bfloat(0x1p64f).bits);
}

NATIVE_TEST(half_types_of_results) {
  half h = 1.5h;
  bfloat b = bfloat(2.5f);
  CHECK(has_type<half>(h + h) && has_type<half>(h * 2) && has_type<half>(2u * h) &&
        has_type<float>(h * 2.0f));
  CHECK(has_type<bfloat>(b + b) && has_type<bfloat>(b * 2) && has_type<float>(2.0f / b) &&
        has_type<half>(-h));
  CHECK_EQ(float(h * 2), 3.0f);
  CHECK_EQ(float(0.1h), float(half::from_bits(0x2e66)));
  h += 1.0f;
  CHECK_EQ(h, 2.5f);
  h /= 2.5h;
  CHECK_EQ(int(h), 1);
  b -= 1;
  CHECK(b == 1.5f && b > 1 && h != b);
  CHECK_EQ((-half(0.0f)).bits, 0x8000);
  // 2048 + 1 is a tie in half, and is 2049 in float.
  CHECK_EQ(float(half(2048) + half(1)), 2048.0f);
  CHECK_EQ(half(2048) + 1.0f, 2049.0f);
}

NATIVE_TEST(vector_layout) {
  CHECK(sizeof(float2) == 8 && alignof(float2) == 8 && sizeof(float3) == 16 && alignof(float3) == 16);
  CHECK(sizeof(half3) == 8 && alignof(half4) == 8 && sizeof(uchar4) == 4 && sizeof(long4) == 32);
  CHECK(sizeof(packed_float3) == 12 && alignof(packed_float3) == 4 && sizeof(packed_half3) == 6);
  CHECK(alignof(packed_ushort4) == 2 && sizeof(bool3) == 4 && sizeof(packed_char3) == 3);
}

NATIVE_TEST(vector_constructors) {
  const float4 a(float3(1, 2, 3), 4), b(1, float3(2, 3, 4)), c(float2(1, 2), float2(3, 4));
  const float4 d(float2(1, 2), 3, 4), e(1, float2(2, 3), 4), f(1, 2, float2(3, 4));
  CHECK(all(a == b) && all(b == c) && all(c == d) && all(d == e) && all(e == f));
  float4 g = 2;
  half4 h = 0.5f;
  CHECK(all(g == float4(2, 2, 2, 2)) && all(h == half4(0.5h)));
  CHECK(all(int3(float3(1.9f, -1.9f, 7)) == int3(1, -1, 7)));
  CHECK(all(float2(uchar2(200, 255)) == float2(200, 255)));
  CHECK(all(uint2(ulong4(1, 2, 3, 4).wy) == uint2(4, 2)));
  CHECK(all(float3(float2(5, 6), 7) == float3(5, float2(6, 7))));
  packed_float3 p = float3(1, 2, 3);
  p += 1.0f;
  CHECK(p.z == 4 && p[0] == 2 && all(float3(p) * 2 == float3(4, 6, 8)) && all(half3(p) == half3(2, 3, 4)));
}

NATIVE_TEST(vector_swizzles) {
  float4 v(1, 2, 3, 4);
  CHECK(v.x == 1 && v.a == 4 && v.g == 2 && v[2] == 3);
  CHECK(all(v.wzyx == float4(4, 3, 2, 1)) && all(v.rgb == float3(1, 2, 3)) && all(v.xxxx == float4(1)));
  CHECK(all(v.yy + v.zw == float2(5, 6)) && all(2 * v.xy == float2(2, 4)) && all(-v.xy == float2(-1, -2)));
  v.xy = v.yx;
  CHECK(all(v == float4(2, 1, 3, 4)));
  v.zw = v.xy;  // the same swizzle type of another place would copy all components
  CHECK(all(v == float4(2, 1, 2, 1)));
  float4 w(9, 8, 7, 6);
  w.xz = v.xz;
  CHECK(all(w == float4(2, 8, 2, 6)));
  w.yw += 1.0f;
  w.bgr *= float3(1, 2, 3);
  CHECK(all(w == float4(6, 18, 2, 7)));
  w.wx = 0;
  CHECK(all(w == float4(0, 18, 2, 0)));
  uint3 u(1, 2, 3);
  u.zx <<= 2;
  CHECK(all(u == uint3(4, 2, 12)));
}

NATIVE_TEST(vector_operators) {
  const int4 a(7, -7, 0, 5), b(2, 2, 3, 5);
  CHECK(all(a / b == int4(3, -3, 0, 1)) && all(a % b == int4(1, -1, 0, 0)) &&
        all((a & b) == int4(2, 0, 0, 5)));
  CHECK(all((a > b) == bool4(true, false, false, false)) && all((a >= 5) == bool4(true, false, false, true)));
  CHECK(any(a == b) && !all(a == b) && all(!(a == b) || a == b) && all(~a == -a - 1));
  CHECK(all((uchar2(200, 100) + uchar2(100, 100)) == uchar2(44, 200)));
  CHECK(all((uint2(1, 1) << uint2(33, 31)) == uint2(2, 0x80000000u)));  // amounts modulo the width
  CHECK(all(1.0f / float2(2, 4) == float2(0.5f, 0.25f)));
  half2 h(2048, 1);
  h += 1;
  CHECK(all(h == half2(2048, 2)));
  CHECK(all(metal::select(a, b, a < b) == int4(7, 2, 3, 5)) && metal::select(1, 2, true) == 2);
}

NATIVE_TEST(as_type_keeps_bits) {
  CHECK_EQ(as_type<uint>(1.0f), 0x3f800000u);
  CHECK_EQ(as_type<float>(0x40490fdbu), 3.14159274f);
  CHECK_EQ(as_type<ushort>(half(1.0f)), 0x3c00);
  CHECK(all(as_type<uchar4>(0x04030201u) == uchar4(1, 2, 3, 4)));
  CHECK_EQ(as_type<uint>(half2(1.0h, 2.0h)), 0x40003c00u);
  CHECK_EQ(as_type<uint>(ushort4(1, 2, 3, 4).wx), 0x00010004u);
}

NATIVE_TEST(integer_functions) {
  CHECK_EQ(metal::popcount(0xf0f0u), 8u);
  CHECK(metal::popcount(char(-1)) == 8 && metal::clz(ushort(1)) == 15 && metal::clz(0u) == 32u);
  CHECK(metal::ctz(8) == 3 && metal::ctz(uchar(0)) == 8 && metal::clz(1ul) == 63ul);
  CHECK(metal::abs(-5) == 5 && metal::abs(short(-7)) == 7 &&
        metal::absdiff(INT32_MIN, INT32_MAX) == UINT32_MAX);
  CHECK(metal::min(3u, 4u) == 3u && metal::max(-3, 4) == 4 && metal::clamp(9, 1, 5) == 5);
  CHECK_EQ(metal::mulhi(0x80000000u, 6u), 3u);
  CHECK_EQ(metal::mulhi(INT32_MIN, 6), -3);
  CHECK_EQ(metal::mulhi(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
  CHECK_EQ(metal::mad24(1000, -1000, 7), -999993);
  CHECK_EQ(metal::mad24(0xff000002u, 3u, 1u), 7u);
  CHECK_EQ(metal::reverse_bits(1u), 0x80000000u);
  CHECK_EQ(metal::reverse_bits(uchar(0x13)), 0xc8);
  CHECK_EQ(metal::rotate(0x80000001u, 1u), 3u);
  CHECK_EQ(metal::rotate(ushort(0x1234), ushort(4)), 0x2341);
  CHECK_EQ(metal::rotate(5, 0), 5);
  CHECK(metal::extract_bits(0xabcdu, 4, 8) == 0xbcu && metal::extract_bits(0x0f00, 8, 4) == -1);
  CHECK(metal::extract_bits(UINT64_MAX, 0, 64) == UINT64_MAX && metal::extract_bits(7u, 3, 0) == 0);
  CHECK_EQ(metal::insert_bits(0xffffffffu, 0u, 8, 4), 0xfffff0ffu);
  CHECK(all(metal::popcount(uint3(1, 3, 7)) == uint3(1, 2, 3)) &&
        all(metal::max(int2(1, 5), 3) == int2(3, 5)));
}

NATIVE_TEST(math_functions) {
  CHECK_EQ(metal::exp(1.0f), std::exp(1.0f));
  CHECK_EQ(metal::precise::log2(8.0f), 3.0f);
  CHECK_EQ(metal::fast::rsqrt(16.0f), 0.25f);
  CHECK_EQ(metal::exp10(2.0f), 100.0f);
  CHECK_EQ(metal::sign(-0.0f) == 0 && std::signbit(metal::sign(-0.0f)) && metal::sign(NAN) == 0, true);
  CHECK(metal::max(NAN, 1.0f) == 1 && metal::max(1.0f, NAN) == 1 && metal::fmin(NAN, 2.0f) == 2);
  CHECK(metal::isnan(metal::fmin(NAN, NAN)) && metal::saturate(2.5f) == 1 &&
        metal::clamp(-1.0f, 0.0f, 1.0f) == 0);
  CHECK(metal::round(2.5f) == 3 && metal::rint(2.5f) == 2 && metal::trunc(-2.5f) == -2 &&
        metal::floor(-2.5f) == -3);
  CHECK(fract(-0.25f) == 0.75f && fract(-1e-10f) < 1 && fract(-0x1p-24h) < 1 && fract(half(INFINITY)) == 0);
  CHECK(metal::step(1.0f, 0.5f) == 0 && metal::mix(1.0f, 3.0f, 0.5f) == 2 &&
        metal::smoothstep(0.f, 2.f, 1.f) == 0.5f);
  CHECK(metal::fdim(3.0f, 5.0f) == 0 && metal::fmod(-5.5f, 2.0f) == -1.5f &&
        metal::copysign(2.0f, -0.0f) == -2);
  CHECK(metal::fma(2.0f, 3.0f, 4.0f) == 10 && metal::powr(2.0f, 3.0f) == 8 &&
        metal::isnan(metal::powr(-2.0f, 3.0f)));
  int exponent = 0;
  CHECK(metal::frexp(12.0f, exponent) == 0.75f && exponent == 4 && metal::ldexp(0.75f, 4) == 12);
  float whole = 0, cosine = 0;
  CHECK(metal::modf(-2.5f, whole) == -0.5f && whole == -2);
  CHECK(metal::sincos(0.5f, cosine) == std::sin(0.5f) && cosine == std::cos(0.5f));
  CHECK(metal::isinf(half(INFINITY)) && metal::isnan(bfloat(NAN)) && metal::isfinite(1.0h) &&
        metal::isnormal(1.0f));
  CHECK(metal::isnormal(6.2e-5h) && !metal::isnormal(5.9e-5h) && metal::signbit(-0.0h));
}

NATIVE_TEST(math_functions_of_small_floats) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const half h = half::from_bits(uint16_t(bits));
    const bfloat b = bfloat::from_bits(uint16_t(bits));
    if (metal::isnan(h) || metal::isnan(b)) continue;
    CHECK_EQ(metal::exp(h).bits, half(std::exp(float(h))).bits);
    CHECK_EQ(metal::tanh(b).bits, bfloat(std::tanh(float(b))).bits);
  }
  CHECK(has_type<half>(metal::sqrt(2.0h)) && has_type<bfloat>(metal::max(bfloat(1), bfloat(2))));
}

NATIVE_TEST(math_functions_of_vectors) {
  const float4 v(1, 4, 9, 16);
  CHECK(all(metal::sqrt(v) == float4(1, 2, 3, 4)) && all(metal::sqrt(v.yx) == float2(2, 1)));
  CHECK(all(metal::max(v, 5.0f) == float4(5, 5, 9, 16)) && all(metal::clamp(v.xyz, 2, 8) == float3(2, 4, 8)));
  CHECK(all(metal::mix(float2(0, 2), float2(4), 0.5f) == float2(2, 3)));
  CHECK(all(metal::precise::abs(half2(-1, 2)) == half2(1, 2)) &&
        all(metal::isnan(float2(NAN, 1)) == bool2(true, false)));
  int2 exponent;
  CHECK(all(metal::frexp(float2(12, 1), exponent) == float2(0.75f, 0.5f)) && all(exponent == int2(4, 1)));
  float2 whole;
  CHECK(all(metal::modf(float2(1.5f, -2.25f), whole) == float2(0.5f, -0.25f)) && all(whole == float2(1, -2)));
  CHECK(metal::dot(v, float4(1)) == 30 && metal::length(float2(3, 4)) == 5 && metal::dot(v.xy, v.yx) == 8);
  CHECK(metal::distance(float2(1, 1), float2(4, 5)) == 5 && has_type<half>(metal::dot(half3(1), half3(2))));
  CHECK(all(metal::cross(float3(1, 0, 0), float3(0, 1, 0)) == float3(0, 0, 1)));
  CHECK(all(metal::normalize(float2(0, 4)) == float2(0, 1)));
}

NATIVE_TEST(limits) {
  using metal::numeric_limits;
  CHECK(numeric_limits<int>::max() == INT32_MAX && numeric_limits<char>::min() == -128);
  CHECK(numeric_limits<ulong>::max() == UINT64_MAX && numeric_limits<long>::lowest() == INT64_MIN);
  CHECK(numeric_limits<ushort>::max() == 65535 && numeric_limits<bool>::max());
  CHECK(float(HALF_MAX) == 65504.0f && float(HALF_EPSILON) == 0x1p-10f && float(HALF_MIN) == 0x1p-14f);
  CHECK(BFLOAT_EPSILON == 0x1p-7f && numeric_limits<bfloat>::infinity() == INFINITY);
  CHECK(numeric_limits<half>::lowest() == -65504.0f && numeric_limits<float>::denorm_min() == 0x1p-149f);
  CHECK_EQ(M_PI_F, 3.14159274f);
}

NATIVE_TEST(atomics) {
  metal::atomic_uint counter;
  metal::atomic_store_explicit(&counter, 5, metal::memory_order_relaxed);
  CHECK_EQ(metal::atomic_fetch_add_explicit(&counter, 3, metal::memory_order_relaxed), 5u);
  CHECK_EQ(metal::atomic_fetch_max_explicit(&counter, 7, metal::memory_order_relaxed), 8u);
  CHECK_EQ(metal::atomic_fetch_min_explicit(&counter, 6, metal::memory_order_relaxed), 8u);
  CHECK_EQ(metal::atomic_fetch_xor_explicit(&counter, 3, metal::memory_order_relaxed), 6u);
  uint expected = 4;
  CHECK(!metal::atomic_compare_exchange_weak_explicit(&counter, &expected, 9, metal::memory_order_relaxed,
                                                      metal::memory_order_relaxed));
  CHECK_EQ(expected, 5u);
  CHECK(metal::atomic_compare_exchange_weak_explicit(&counter, &expected, 9, metal::memory_order_relaxed,
                                                     metal::memory_order_relaxed));
  CHECK_EQ(metal::atomic_exchange_explicit(&counter, 1, metal::memory_order_relaxed), 9u);
  metal::atomic_float total;
  metal::atomic_store_explicit(&total, 0.5f, metal::memory_order_relaxed);
  CHECK_EQ(metal::atomic_fetch_add_explicit(&total, 1.25f, metal::memory_order_relaxed), 0.5f);
  CHECK_EQ(metal::atomic_load_explicit(&total, metal::memory_order_relaxed), 1.75f);
}
