// Scalar type names, and the type traits of <metal_type_traits>.
#pragma once

#include "builtins.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;

static_assert(sizeof(long) == 8, "kernels need a 64-bit long");

template <typename T, T v>
struct integral_constant {
  static constexpr T value = v;
  using value_type = T;
  constexpr operator T() const { return v; }
};
template <bool v>
using bool_constant = integral_constant<bool, v>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <typename A, typename B>
inline constexpr bool is_same_v = false;
template <typename A>
inline constexpr bool is_same_v<A, A> = true;
template <typename A, typename B>
struct is_same : bool_constant<is_same_v<A, B>> {};

template <bool condition, typename A, typename B>
struct conditional {
  using type = A;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool condition, typename A, typename B>
using conditional_t = typename conditional<condition, A, B>::type;

template <bool condition, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  using type = T;
};
template <bool condition, typename T = void>
using enable_if_t = typename enable_if<condition, T>::type;

#define PYTURBO_REMOVE(name, pattern) \
  template <typename T>               \
  struct name {                       \
    using type = T;                   \
  };                                  \
  template <typename T>               \
  struct name<pattern> {              \
    using type = T;                   \
  };                                  \
  template <typename T>               \
  using name##_t = typename name<T>::type;

PYTURBO_REMOVE(remove_const, const T)
PYTURBO_REMOVE(remove_volatile, volatile T)
PYTURBO_REMOVE(remove_pointer, T*)
#undef PYTURBO_REMOVE

template <typename T>
struct remove_reference {
  using type = T;
};
template <typename T>
struct remove_reference<T&> {
  using type = T;
};
template <typename T>
struct remove_reference<T&&> {
  using type = T;
};
template <typename T>
using remove_reference_t = typename remove_reference<T>::type;

template <typename T>
struct remove_cv {
  using type = remove_const_t<remove_volatile_t<T>>;
};
template <typename T>
using remove_cv_t = typename remove_cv<T>::type;

template <typename T>
inline constexpr bool is_const_v = false;
template <typename T>
inline constexpr bool is_const_v<const T> = true;
template <typename T>
struct is_const : bool_constant<is_const_v<T>> {};

template <typename T>
inline constexpr bool is_pointer_v = false;
template <typename T>
inline constexpr bool is_pointer_v<T*> = true;
template <typename T>
struct is_pointer : bool_constant<is_pointer_v<remove_cv_t<T>>> {};

namespace detail {
template <typename Format>
struct SmallFloat;

template <typename T>
inline constexpr bool is_integral = false;
template <typename T>
inline constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <typename Format>
inline constexpr bool is_floating<SmallFloat<Format>> = true;
#define PYTURBO_INTEGRAL(T) \
  template <>               \
  inline constexpr bool is_integral<T> = true;
PYTURBO_INTEGRAL(bool)
PYTURBO_INTEGRAL(char)
PYTURBO_INTEGRAL(signed char)
PYTURBO_INTEGRAL(uchar)
PYTURBO_INTEGRAL(short)
PYTURBO_INTEGRAL(ushort)
PYTURBO_INTEGRAL(int)
PYTURBO_INTEGRAL(uint)
PYTURBO_INTEGRAL(long)
PYTURBO_INTEGRAL(ulong)
PYTURBO_INTEGRAL(long long)
PYTURBO_INTEGRAL(unsigned long long)
#undef PYTURBO_INTEGRAL

template <typename T>
concept Integer = is_integral<T>;
// float, and double because an unsuffixed literal is a double in C++ and a float in MSL.
template <typename T>
concept Real = is_same_v<T, float> || is_same_v<T, double>;
template <typename T>
concept Scalar = is_integral<T> || is_floating<T> || Real<T>;

template <typename T>
struct Identity {
  using type = T;
};
// A parameter type that takes no part in template argument deduction.
template <typename T>
using NoDeduce = typename Identity<T>::type;
}  // namespace detail

template <typename T>
inline constexpr bool is_integral_v = detail::is_integral<remove_cv_t<T>>;
template <typename T>
struct is_integral : bool_constant<is_integral_v<T>> {};

template <typename T>
inline constexpr bool is_floating_point_v = detail::is_floating<remove_cv_t<T>>;
template <typename T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};

template <typename T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <typename T>
struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};

template <typename T, bool = is_arithmetic_v<T>>
inline constexpr bool is_signed_v = false;
template <typename T>
inline constexpr bool is_signed_v<T, true> = T(-1) < T(0);
template <typename T>
struct is_signed : bool_constant<is_signed_v<T>> {};

template <typename T>
inline constexpr bool is_unsigned_v = is_arithmetic_v<T> && !is_signed_v<T>;
template <typename T>
struct is_unsigned : bool_constant<is_unsigned_v<T>> {};

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
