// The product of two simdgroup matrices, whose elements move between lanes.
#pragma once

#include "metal/matrix_place.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// The lane that holds an element: the inverse of matrix_place.
constexpr uint matrix_lane(uint row, uint column) {
  return (row & 4) << 2 | (column & 4) << 1 | (row & 3) << 1 | (column >> 1 & 1);
}

// Returns this lane's two elements of a * b + c, from its two elements of each.
template <typename A, typename B>
inline float2 matrix_product(const vec<A, 2>& a, const vec<B, 2>& b, float2 c, uint) {
  const auto [row, column] = own_place();
  const float a0 = float(a[0]), a1 = float(a[1]), b0 = float(b[0]), b1 = float(b[1]);
#pragma unroll 2  // shaders unroll a hundred products, which NVRTC would take a minute for
  for (uint k = 0; k < 8; ++k) {
    const float left = shuffle(k % 2 ? a1 : a0, matrix_lane(row, k), 0);
    c[0] += left * shuffle(b0, matrix_lane(k, column), 0);
    c[1] += left * shuffle(b1, matrix_lane(k, column), 0);
  }
  return c;
}

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
