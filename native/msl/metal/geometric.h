// Geometric functions: sums in float over ascending components, rounded once to the element type.
#pragma once

#include "metal/vector_math.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {
template <typename V>
inline float dot(const V& a, const V& b) {
  float sum = 0;
  for (int i = 0; i < V::N; ++i) sum += float(a[i]) * float(b[i]);
  return sum;
}
}  // namespace detail

template <detail::VectorLike A, detail::VectorLike B, typename V = detail::join_t<A, B>>
inline typename V::element_type dot(const A& a, const B& b) {
  return typename V::element_type(detail::dot<V>(a, b));
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline typename V::element_type length_squared(const A& a) {
  return dot(a, a);
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline typename V::element_type length(const A& a) {
  return typename V::element_type(sqrt(detail::dot<V>(a, a)));
}

template <detail::VectorLike A, detail::VectorLike B, typename V = detail::join_t<A, B>>
inline typename V::element_type distance(const A& a, const B& b) {
  return length(V(a) - V(b));
}

template <detail::VectorLike A, detail::VectorLike B, typename V = detail::join_t<A, B>>
inline typename V::element_type distance_squared(const A& a, const B& b) {
  return length_squared(V(a) - V(b));
}

template <detail::VectorLike A, typename V = detail::join_t<A>>
inline V normalize(const A& a) {
  V x = a;
  const float scale = rsqrt(detail::dot<V>(x, x));
  for (int i = 0; i < V::N; ++i) x[i] = typename V::element_type(float(x[i]) * scale);
  return x;
}

template <detail::VectorLike A, detail::VectorLike B, typename V = detail::join_t<A, B>>
inline V cross(const A& a, const B& b) {
  static_assert(V::N == 3);
  const V x = a, y = b;
  V result;
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    result[i] = typename V::element_type(float(x[j]) * float(y[k]) - float(x[k]) * float(y[j]));
  }
  return result;
}

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
