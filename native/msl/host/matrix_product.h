// The product of two simdgroup matrices, whose elements the executor collects.
#pragma once

#include "metal/matrix_place.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// One lane's share of both factors.
template <typename A, typename B>
struct Factors {
  A a[2];
  B b[2];
};

// Both factors in float, by row and column.
struct FloatFactors {
  float a[8][8];
  float b[8][8];
};

// Returns the factors that all lanes have published, collected by the first lane that needs them.
template <typename Share>
PYTURBO_LANES const FloatFactors& collect_factors(Exchange& exchange) {
  static_assert(sizeof(FloatFactors) <= pyturbo::simt::kResultBytes);
  FloatFactors& factors = *reinterpret_cast<FloatFactors*>(exchange.result);
  if (exchange.reduced) return factors;
  for (uint lane = 0; lane < kLanes; ++lane) {
    const Share share = peer<Share>(exchange, lane);
    const auto [row, column] = matrix_place(lane);
    for (uint i = 0; i < 2; ++i) {
      factors.a[row][column + i] = float(share.a[i]);
      factors.b[row][column + i] = float(share.b[i]);
    }
  }
  exchange.reduced = true;
  return factors;
}

// Returns this lane's two elements of a * b + c, from its two elements of each.
template <typename A, typename B>
PYTURBO_LANES float2 matrix_product(const vec<A, 2>& a, const vec<B, 2>& b, float2 c, uint site) {
  using Share = Factors<A, B>;
  const FloatFactors& factors = collect_factors<Share>(publish(Share{{a[0], a[1]}, {b[0], b[1]}}, site));
  const auto [row, column] = own_place();
  for (uint k = 0; k < 8; ++k) {
    c[0] += factors.a[row][k] * factors.b[k][column];
    c[1] += factors.a[row][k] * factors.b[k][column + 1];
  }
  return c;
}

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
