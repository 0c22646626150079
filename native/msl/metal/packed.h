// packed_float3 and its kin: vectors in memory with the alignment of their scalar. They compute as vectors.
#pragma once

#include "metal/vec.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

#define PYTURBO_PACKED_MEMBERS(size)                       \
  using vector_type = V;                                   \
  Packed() = default;                                      \
  Packed(const V& value) { *this = value; }                \
  template <Scalar S>                                      \
  explicit Packed(S s) : Packed(V(s)) {}                   \
  operator V() const {                                     \
    V value;                                               \
    for (int i = 0; i < size; ++i) value[i] = elements[i]; \
    return value;                                          \
  }                                                        \
  Packed& operator=(const V& value) {                      \
    for (int i = 0; i < size; ++i) elements[i] = value[i]; \
    return *this;                                          \
  }                                                        \
  T& operator[](size_t i) { return elements[i]; }          \
  const T& operator[](size_t i) const { return elements[i]; }

template <typename V, typename T, int N>
struct Packed;

template <typename V, typename T>
struct Packed<V, T, 2> {
  union {
    T elements[2];
    struct {
      T x, y;
    };
  };
  Packed(T a, T b) : elements{a, b} {}
  PYTURBO_PACKED_MEMBERS(2)
};

template <typename V, typename T>
struct Packed<V, T, 3> {
  union {
    T elements[3];
    struct {
      T x, y, z;
    };
  };
  Packed(T a, T b, T c) : elements{a, b, c} {}
  PYTURBO_PACKED_MEMBERS(3)
};

template <typename V, typename T>
struct Packed<V, T, 4> {
  union {
    T elements[4];
    struct {
      T x, y, z, w;
    };
  };
  Packed(T a, T b, T c, T d) : elements{a, b, c, d} {}
  PYTURBO_PACKED_MEMBERS(4)
};
#undef PYTURBO_PACKED_MEMBERS

#define PYTURBO_ASSIGN(op)                                                    \
  template <typename V, typename T, int N>                                    \
  Packed<V, T, N>& operator op##=(Packed<V, T, N>& a, const NoDeduce<V>& b) { \
    return a = V(a) op b;                                                     \
  }
PYTURBO_ASSIGN(+)
PYTURBO_ASSIGN(-)
PYTURBO_ASSIGN(*)
PYTURBO_ASSIGN(/)
#undef PYTURBO_ASSIGN

}  // namespace detail

template <typename T, int N>
using packed_vec = detail::Packed<vec<T, N>, T, N>;

#define PYTURBO_NAMES(T, prefix)               \
  using packed_##prefix##2 = packed_vec<T, 2>; \
  using packed_##prefix##3 = packed_vec<T, 3>; \
  using packed_##prefix##4 = packed_vec<T, 4>;
PYTURBO_ELEMENT_TYPES(PYTURBO_NAMES)
#undef PYTURBO_NAMES

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
