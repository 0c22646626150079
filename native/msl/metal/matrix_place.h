// Where the elements of a simdgroup_matrix are: 64 elements spread over 32 lanes, two neighbours of one row
// in each. Lane l holds row (l/4 & 4) + l/2 % 4, columns c and c + 1 with c = (l/4 & 2) * 2 + l % 2 * 2.
#pragma once

#include "lanes.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

struct MatrixPlace {
  uint row, column;  // of the first of the two elements
};
constexpr MatrixPlace matrix_place(uint lane) {
  const uint quad = lane / 4;
  return {(quad & 4) + lane / 2 % 4, (quad & 2) * 2 + lane % 2 * 2};
}
inline MatrixPlace own_place() { return matrix_place(lane()); }

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
