// Swizzles: members of a vector's union that read and write its components in another order.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

template <typename T, int N>
struct vec;

namespace detail {

constexpr int highest(int a, int b, int c = 0, int d = 0) {
  const int ab = a > b ? a : b, cd = c > d ? c : d;
  return ab > cd ? ab : cd;
}
constexpr bool distinct(int a, int b, int c = -1, int d = -2) {
  return a != b && a != c && a != d && b != c && b != d && c != d;
}

// Shares the memory of a vector of T and selects its components I... . V is vec<T, sizeof...(I)>.
template <typename V, typename T, int... I>
struct Swizzle {
  using vector_type = V;

  T elements[highest(I...) + 1];

  Swizzle() = default;
  Swizzle(const Swizzle&) = default;
  operator V() const { return V(elements[I]...); }
  Swizzle& operator=(const Swizzle& other) { return *this = V(other); }
  Swizzle& operator=(const V& value) {
    static_assert(distinct(I...), "a swizzle that names a component twice cannot be assigned");
    const V copy = value;
    int i = 0;
    ((elements[I] = copy[i++]), ...);
    return *this;
  }
};

#define PYTURBO_ASSIGN(op)                                                            \
  template <typename V, typename T, int... I>                                         \
  Swizzle<V, T, I...>& operator op##=(Swizzle<V, T, I...>& a, const NoDeduce<V>& b) { \
    return a = V(a) op b;                                                             \
  }
PYTURBO_ASSIGN(+)
PYTURBO_ASSIGN(-)
PYTURBO_ASSIGN(*)
PYTURBO_ASSIGN(/)
PYTURBO_ASSIGN(%)
PYTURBO_ASSIGN(&)
PYTURBO_ASSIGN(|)
PYTURBO_ASSIGN(^)
PYTURBO_ASSIGN(<<)
PYTURBO_ASSIGN(>>)
#undef PYTURBO_ASSIGN

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal

// One declaration each: name n, component numbers i j k l, element type T.
#define PYTURBO_SW2(n, i, j) detail::Swizzle<vec<T, 2>, T, i, j> n;
#define PYTURBO_SW3(n, i, j, k) detail::Swizzle<vec<T, 3>, T, i, j, k> n;
#define PYTURBO_SW4(n, i, j, k, l) detail::Swizzle<vec<T, 4>, T, i, j, k, l> n;

// All swizzles of a vector with the given component letters. Dn appends the n-th letter to a name.
#define PYTURBO_SWIZZLES_2(x, y) PYTURBO_2D2(x, 0, x, y) PYTURBO_2D2(y, 1, x, y)
#define PYTURBO_2D2(n, i, x, y) PYTURBO_2E2(n##x, i, 0, x, y) PYTURBO_2E2(n##y, i, 1, x, y)
#define PYTURBO_2E2(n, i, j, x, y) PYTURBO_SW2(n, i, j) PYTURBO_2D3(n, i, j, x, y)
#define PYTURBO_2D3(n, i, j, x, y) PYTURBO_2E3(n##x, i, j, 0, x, y) PYTURBO_2E3(n##y, i, j, 1, x, y)
#define PYTURBO_2E3(n, i, j, k, x, y) PYTURBO_SW3(n, i, j, k) PYTURBO_2D4(n, i, j, k, x, y)
#define PYTURBO_2D4(n, i, j, k, x, y) PYTURBO_SW4(n##x, i, j, k, 0) PYTURBO_SW4(n##y, i, j, k, 1)

#define PYTURBO_SWIZZLES_3(x, y, z) \
  PYTURBO_3D2(x, 0, x, y, z) PYTURBO_3D2(y, 1, x, y, z) PYTURBO_3D2(z, 2, x, y, z)
#define PYTURBO_3D2(n, i, x, y, z) \
  PYTURBO_3E2(n##x, i, 0, x, y, z) PYTURBO_3E2(n##y, i, 1, x, y, z) PYTURBO_3E2(n##z, i, 2, x, y, z)
#define PYTURBO_3E2(n, i, j, x, y, z) PYTURBO_SW2(n, i, j) PYTURBO_3D3(n, i, j, x, y, z)
#define PYTURBO_3D3(n, i, j, x, y, z) \
  PYTURBO_3E3(n##x, i, j, 0, x, y, z) \
  PYTURBO_3E3(n##y, i, j, 1, x, y, z) \
  PYTURBO_3E3(n##z, i, j, 2, x, y, z)
#define PYTURBO_3E3(n, i, j, k, x, y, z) PYTURBO_SW3(n, i, j, k) PYTURBO_3D4(n, i, j, k, x, y, z)
#define PYTURBO_3D4(n, i, j, k, x, y, z) \
  PYTURBO_SW4(n##x, i, j, k, 0) PYTURBO_SW4(n##y, i, j, k, 1) PYTURBO_SW4(n##z, i, j, k, 2)

#define PYTURBO_SWIZZLES_4(x, y, z, w) \
  PYTURBO_4D2(x, 0, x, y, z, w)        \
  PYTURBO_4D2(y, 1, x, y, z, w)        \
  PYTURBO_4D2(z, 2, x, y, z, w)        \
  PYTURBO_4D2(w, 3, x, y, z, w)
#define PYTURBO_4D2(n, i, x, y, z, w) \
  PYTURBO_4E2(n##x, i, 0, x, y, z, w) \
  PYTURBO_4E2(n##y, i, 1, x, y, z, w) \
  PYTURBO_4E2(n##z, i, 2, x, y, z, w) \
  PYTURBO_4E2(n##w, i, 3, x, y, z, w)
#define PYTURBO_4E2(n, i, j, x, y, z, w) PYTURBO_SW2(n, i, j) PYTURBO_4D3(n, i, j, x, y, z, w)
#define PYTURBO_4D3(n, i, j, x, y, z, w) \
  PYTURBO_4E3(n##x, i, j, 0, x, y, z, w) \
  PYTURBO_4E3(n##y, i, j, 1, x, y, z, w) \
  PYTURBO_4E3(n##z, i, j, 2, x, y, z, w) \
  PYTURBO_4E3(n##w, i, j, 3, x, y, z, w)
#define PYTURBO_4E3(n, i, j, k, x, y, z, w) PYTURBO_SW3(n, i, j, k) PYTURBO_4D4(n, i, j, k, x, y, z, w)
#define PYTURBO_4D4(n, i, j, k, x, y, z, w) \
  PYTURBO_SW4(n##x, i, j, k, 0)             \
  PYTURBO_SW4(n##y, i, j, k, 1)             \
  PYTURBO_SW4(n##z, i, j, k, 2)             \
  PYTURBO_SW4(n##w, i, j, k, 3)
