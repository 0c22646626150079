// The scalar functions applied to vectors component by component, and metal::precise and metal::fast.
#pragma once

#include "metal/integer.h"
#include "metal/math.h"
#include "metal/vec.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

#define PYTURBO_VECTOR_UNARY(name)                   \
  template <detail::VectorLike A>                    \
  inline detail::join_t<A> name(const A& a) {        \
    detail::join_t<A> x = a;                         \
    for (int i = 0; i < x.N; ++i) x[i] = name(x[i]); \
    return x;                                        \
  }
#define PYTURBO_VECTOR_BINARY(name)                                    \
  template <typename A, typename B, typename V = detail::join_t<A, B>> \
  inline V name(const A& a, const B& b) {                              \
    V x = a;                                                           \
    const V y = b;                                                     \
    for (int i = 0; i < V::N; ++i) x[i] = name(x[i], y[i]);            \
    return x;                                                          \
  }
#define PYTURBO_VECTOR_TERNARY(name)                                                  \
  template <typename A, typename B, typename C, typename V = detail::join_t<A, B, C>> \
  inline V name(const A& a, const B& b, const C& c) {                                 \
    V x = a;                                                                          \
    const V y = b, z = c;                                                             \
    for (int i = 0; i < V::N; ++i) x[i] = name(x[i], y[i], z[i]);                     \
    return x;                                                                         \
  }
#define PYTURBO_VECTOR_CLASSIFY(name)                       \
  template <detail::VectorLike A>                           \
  inline vec<bool, detail::join_t<A>::N> name(const A& a) { \
    const detail::join_t<A> x = a;                          \
    vec<bool, detail::join_t<A>::N> result;                 \
    for (int i = 0; i < x.N; ++i) result[i] = name(x[i]);   \
    return result;                                          \
  }

PYTURBO_MATH_UNARY(PYTURBO_VECTOR_UNARY)
PYTURBO_MATH_BINARY(PYTURBO_VECTOR_BINARY)
PYTURBO_MATH_TERNARY(PYTURBO_VECTOR_TERNARY)
PYTURBO_MATH_CLASSIFY(PYTURBO_VECTOR_CLASSIFY)
PYTURBO_VECTOR_UNARY(fract)
PYTURBO_VECTOR_UNARY(abs)
PYTURBO_VECTOR_BINARY(min)
PYTURBO_VECTOR_BINARY(max)
PYTURBO_VECTOR_TERNARY(clamp)
PYTURBO_VECTOR_UNARY(popcount)
PYTURBO_VECTOR_UNARY(clz)
PYTURBO_VECTOR_UNARY(ctz)
PYTURBO_VECTOR_UNARY(reverse_bits)
PYTURBO_VECTOR_BINARY(mulhi)
PYTURBO_VECTOR_BINARY(rotate)
PYTURBO_VECTOR_BINARY(mul24)
PYTURBO_VECTOR_TERNARY(mad24)
#undef PYTURBO_VECTOR_UNARY
#undef PYTURBO_VECTOR_BINARY
#undef PYTURBO_VECTOR_TERNARY
#undef PYTURBO_VECTOR_CLASSIFY

template <typename A, typename B, typename V = detail::join_t<A, B>>
inline auto absdiff(const A& a, const B& b) {
  const V x = a, y = b;
  vec<detail::unsigned_t<typename V::element_type>, V::N> result;
  for (int i = 0; i < V::N; ++i) result[i] = absdiff(x[i], y[i]);
  return result;
}

template <detail::VectorLike A>
inline detail::join_t<A> extract_bits(const A& a, uint offset, uint bits) {
  detail::join_t<A> x = a;
  for (int i = 0; i < x.N; ++i) x[i] = extract_bits(x[i], offset, bits);
  return x;
}

template <typename A, typename B, typename V = detail::join_t<A, B>>
inline V insert_bits(const A& base, const B& insert, uint offset, uint bits) {
  V x = base;
  const V y = insert;
  for (int i = 0; i < V::N; ++i) x[i] = insert_bits(x[i], y[i], offset, bits);
  return x;
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline V ldexp(const A& a, const detail::NoDeduce<vec<int, V::N>>& k) {
  V x = a;
  for (int i = 0; i < V::N; ++i) x[i] = ldexp(x[i], k[i]);
  return x;
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline V frexp(const A& a, detail::NoDeduce<vec<int, V::N>>& exponent) {
  V x = a;
  for (int i = 0; i < V::N; ++i) x[i] = frexp(x[i], exponent[i]);
  return x;
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline V modf(const A& a, detail::NoDeduce<V>& whole) {
  V x = a;
  for (int i = 0; i < V::N; ++i) x[i] = modf(x[i], whole[i]);
  return x;
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline V sincos(const A& a, detail::NoDeduce<V>& cosine) {
  V x = a;
  for (int i = 0; i < V::N; ++i) x[i] = sincos(x[i], cosine[i]);
  return x;
}

// b where the condition holds, else a.
template <typename A, typename B, typename V = detail::join_t<A, B>>
inline V select(const A& a, const B& b, const detail::NoDeduce<vec<bool, V::N>>& condition) {
  V x = a;
  const V y = b;
  for (int i = 0; i < V::N; ++i) x[i] = condition[i] ? y[i] : x[i];
  return x;
}

template <detail::VectorLike A>
inline bool any(const A& a) {
  const vec<bool, detail::join_t<A>::N> x = a;
  for (int i = 0; i < x.N; ++i)
    if (x[i]) return true;
  return false;
}

template <detail::VectorLike A>
inline bool all(const A& a) {
  const vec<bool, detail::join_t<A>::N> x = a;
  for (int i = 0; i < x.N; ++i)
    if (!x[i]) return false;
  return true;
}

#define PYTURBO_USING(name) using PYTURBO_VARIANT::name;
#define PYTURBO_USING_ALL             \
  PYTURBO_MATH_UNARY(PYTURBO_USING)   \
  PYTURBO_MATH_BINARY(PYTURBO_USING)  \
  PYTURBO_MATH_TERNARY(PYTURBO_USING) \
  PYTURBO_USING(abs)                  \
  PYTURBO_USING(clamp)                \
  PYTURBO_USING(fract)                \
  PYTURBO_USING(frexp)                \
  PYTURBO_USING(ldexp)                \
  PYTURBO_USING(max)                  \
  PYTURBO_USING(min)                  \
  PYTURBO_USING(modf)                 \
  PYTURBO_USING(sincos)
// On the host the two are the same. The tests of kernels bound the accuracy that fast may lose.
namespace precise {
PYTURBO_USING_ALL
}
namespace fast {
PYTURBO_USING_ALL
}
#undef PYTURBO_USING
#undef PYTURBO_USING_ALL

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
