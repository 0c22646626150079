// metal::vec<T, N>: two to four components, aligned as in Metal (three components take the room of four).
#pragma once

#include "metal/half.h"
#include "metal/swizzle.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// A vector, a swizzle or a packed vector: a type that converts to its vector_type.
template <typename A>
concept VectorLike = requires { typename A::vector_type; };

// The vector type of a function of several arguments: scalars broadcast, vectors must have one type.
template <typename... A>
struct Join {};
template <VectorLike A>
struct Join<A> {
  using type = typename A::vector_type;
};
template <VectorLike A, typename B>
  requires VectorLike<B> && is_same_v<typename A::vector_type, typename B::vector_type>
struct Join<A, B> {
  using type = typename A::vector_type;
};
template <VectorLike A, Scalar B>
struct Join<A, B> {
  using type = typename A::vector_type;
};
template <Scalar A, VectorLike B>
struct Join<A, B> {
  using type = typename B::vector_type;
};
template <typename A, typename B, typename C>
  requires requires { typename Join<A, B>::type; }
struct Join<A, B, C> : Join<typename Join<A, B>::type, C> {};
template <Scalar A, Scalar B, VectorLike C>
struct Join<A, B, C> : Join<C> {};
template <typename... A>
using join_t = typename Join<A...>::type;

// The vector type of a swizzle or packed vector; any other T itself.
template <typename T>
struct Plain {
  using type = T;
};
template <VectorLike T>
struct Plain<T> {
  using type = typename T::vector_type;
};
template <typename T>
using plain_t = typename Plain<T>::type;

// Metal uses only the low bits of a shift amount.
template <typename T>
constexpr T shift_left(T a, T b) {
  return T(a << (b & T(sizeof(T) * 8 - 1)));
}
template <typename T>
constexpr T shift_right(T a, T b) {
  return T(a >> (b & T(sizeof(T) * 8 - 1)));
}

// All components of a vector. It is assigned in one piece, as aligned as the vector: NVRTC then makes one
// load and one store of it.
template <typename T, int N>
struct Whole {
  T elements[N];
};

}  // namespace detail

#define PYTURBO_OPERATOR(op, R, expression)                    \
  friend vec<R, N> operator op(const vec & a, const vec & b) { \
    vec<R, N> result;                                          \
    for (int i = 0; i < N; ++i) result[i] = R(expression);     \
    return result;                                             \
  }
#define PYTURBO_COMPONENTWISE(op, expression) \
  PYTURBO_OPERATOR(op, T, expression)         \
  vec& operator op##=(const vec & b) { return *this = *this op b; }
#define PYTURBO_UNARY(op, R)                            \
  friend vec<R, N> operator op(const vec & a) {         \
    vec<R, N> result;                                   \
    for (int i = 0; i < N; ++i) result[i] = R(op a[i]); \
    return result;                                      \
  }

// The code common to two, three and four components. No loop converts them: GCC would keep it, and store each
// component and load it again.
#define PYTURBO_VECTOR_MEMBERS(size)                                             \
  static constexpr int N = size;                                                 \
  using element_type = T;                                                        \
  using vector_type = vec;                                                       \
  vec() = default;                                                               \
  vec(const vec&) = default;                                                     \
  vec& operator=(const vec& other) {                                             \
    whole = other.whole;                                                         \
    return *this;                                                                \
  }                                                                              \
  template <detail::VectorLike A>                                                \
    requires(A::vector_type::N == N && !is_same_v<typename A::vector_type, vec>) \
  explicit vec(const A& a) {                                                     \
    const typename A::vector_type other = a;                                     \
    elements[0] = T(other[0]);                                                   \
    elements[1] = T(other[1]);                                                   \
    if constexpr (N > 2) elements[2] = T(other[2]);                              \
    if constexpr (N > 3) elements[3] = T(other[3]);                              \
  }                                                                              \
  constexpr T& operator[](size_t i) { return elements[i]; }                      \
  constexpr const T& operator[](size_t i) const { return elements[i]; }          \
  PYTURBO_COMPONENTWISE(+, a[i] + b[i])                                          \
  PYTURBO_COMPONENTWISE(-, a[i] - b[i])                                          \
  PYTURBO_COMPONENTWISE(*, a[i] * b[i])                                          \
  PYTURBO_COMPONENTWISE(/, a[i] / b[i])                                          \
  PYTURBO_COMPONENTWISE(%, a[i] % b[i])                                          \
  PYTURBO_COMPONENTWISE(&, a[i] & b[i])                                          \
  PYTURBO_COMPONENTWISE(|, a[i] | b[i])                                          \
  PYTURBO_COMPONENTWISE(^, a[i] ^ b[i])                                          \
  PYTURBO_COMPONENTWISE(<<, detail::shift_left(a[i], b[i]))                      \
  PYTURBO_COMPONENTWISE(>>, detail::shift_right(a[i], b[i]))                     \
  PYTURBO_OPERATOR(==, bool, a[i] == b[i])                                       \
  PYTURBO_OPERATOR(!=, bool, a[i] != b[i])                                       \
  PYTURBO_OPERATOR(<, bool, a[i] < b[i])                                         \
  PYTURBO_OPERATOR(>, bool, a[i] > b[i])                                         \
  PYTURBO_OPERATOR(<=, bool, a[i] <= b[i])                                       \
  PYTURBO_OPERATOR(>=, bool, a[i] >= b[i])                                       \
  PYTURBO_OPERATOR(&&, bool, a[i] && b[i])                                       \
  PYTURBO_OPERATOR(||, bool, a[i] || b[i])                                       \
  PYTURBO_UNARY(+, T)                                                            \
  PYTURBO_UNARY(-, T)                                                            \
  PYTURBO_UNARY(~, T)                                                            \
  PYTURBO_UNARY(!, bool)                                                         \
  vec& operator++() { return *this += vec(T(1)); }                               \
  vec& operator--() { return *this -= vec(T(1)); }

template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  union {
    T elements[2];
    detail::Whole<T, 2> whole;
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    PYTURBO_SWIZZLES_2(x, y)
    PYTURBO_SWIZZLES_2(r, g)
  };

  template <detail::Scalar S>
  constexpr vec(S s) : elements{T(s), T(s)} {}
  constexpr vec(T a, T b) : elements{a, b} {}
  PYTURBO_VECTOR_MEMBERS(2)
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  union {
    T elements[3];
    detail::Whole<T, 3> whole;
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    PYTURBO_SWIZZLES_3(x, y, z)
    PYTURBO_SWIZZLES_3(r, g, b)
  };

  template <detail::Scalar S>
  constexpr vec(S s) : elements{T(s), T(s), T(s)} {}
  constexpr vec(T a, T b, T c) : elements{a, b, c} {}
  constexpr vec(const vec<T, 2>& a, T b) : elements{a[0], a[1], b} {}
  constexpr vec(T a, const vec<T, 2>& b) : elements{a, b[0], b[1]} {}
  PYTURBO_VECTOR_MEMBERS(3)
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  union {
    T elements[4];
    detail::Whole<T, 4> whole;
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    PYTURBO_SWIZZLES_4(x, y, z, w)
    PYTURBO_SWIZZLES_4(r, g, b, a)
  };

  template <detail::Scalar S>
  constexpr vec(S s) : elements{T(s), T(s), T(s), T(s)} {}
  constexpr vec(T a, T b, T c, T d) : elements{a, b, c, d} {}
  constexpr vec(const vec<T, 2>& a, const vec<T, 2>& b) : elements{a[0], a[1], b[0], b[1]} {}
  constexpr vec(const vec<T, 2>& a, T b, T c) : elements{a[0], a[1], b, c} {}
  constexpr vec(T a, const vec<T, 2>& b, T c) : elements{a, b[0], b[1], c} {}
  constexpr vec(T a, T b, const vec<T, 2>& c) : elements{a, b, c[0], c[1]} {}
  constexpr vec(const vec<T, 3>& a, T b) : elements{a[0], a[1], a[2], b} {}
  constexpr vec(T a, const vec<T, 3>& b) : elements{a, b[0], b[1], b[2]} {}
  PYTURBO_VECTOR_MEMBERS(4)
};

#undef PYTURBO_OPERATOR
#undef PYTURBO_COMPONENTWISE
#undef PYTURBO_UNARY
#undef PYTURBO_VECTOR_MEMBERS

// The element types that have named vectors: X(type, prefix).
#define PYTURBO_ELEMENT_TYPES(X) \
  X(bool, bool)                  \
  X(PYTURBO_CHAR, char)          \
  X(uchar, uchar)                \
  X(short, short)                \
  X(ushort, ushort)              \
  X(int, int)                    \
  X(uint, uint)                  \
  X(long, long)                  \
  X(ulong, ulong)                \
  X(half, half)                  \
  X(bfloat, bfloat)              \
  X(float, float)

#define PYTURBO_NAMES(T, prefix) \
  using prefix##2 = vec<T, 2>;   \
  using prefix##3 = vec<T, 3>;   \
  using prefix##4 = vec<T, 4>;
PYTURBO_ELEMENT_TYPES(PYTURBO_NAMES)
#undef PYTURBO_NAMES

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
