// The product of simdgroup matrices, whose elements the executor collects.
#pragma once

#include "metal/matrix_place.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// What one lane has of a * b + c.
template <typename A, typename B>
struct Shares {
  A a[2];
  B b[2];
  float c[2];
};

using FloatMatrix = float[8][8];  // by row and column

// Returns a * b + c of what all lanes have published, computed by the first lane that needs it. Each sum
// begins with its element of c.
template <typename Share>
PYTURBO_LANES const FloatMatrix& common_product(Exchange& exchange) {
  static_assert(sizeof(FloatMatrix) <= pyturbo::simt::kResultBytes);
  auto& sums = *reinterpret_cast<FloatMatrix*>(exchange.result);
  if (exchange.reduced) return sums;
  FloatMatrix a, b;
  for (uint lane = 0; lane < kLanes; ++lane) {
    const Share share = peer<Share>(exchange, lane);
    const auto [row, column] = matrix_place(lane);
    for (uint i = 0; i < 2; ++i) {
      a[row][column + i] = float(share.a[i]);
      b[row][column + i] = float(share.b[i]);
      sums[row][column + i] = share.c[i];
    }
  }
  for (uint row = 0; row < 8; ++row)
    for (uint k = 0; k < 8; ++k)
      for (uint column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
  exchange.reduced = true;
  return sums;
}

// Returns this lane's two elements of a * b + c, from its two elements of each.
template <typename A, typename B>
PYTURBO_LANES float2 matrix_product(const vec<A, 2>& a, const vec<B, 2>& b, float2 c, uint site) {
  using Share = Shares<A, B>;
  const auto& sums = common_product<Share>(publish(Share{{a[0], a[1]}, {b[0], b[1]}, {c[0], c[1]}}, site));
  const auto [row, column] = own_place();
  return float2(sums[row][column], sums[row][column + 1]);
}

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
