// simdgroup_matrix<T, 8, 8>: 64 elements, two in each of 32 lanes.
#pragma once

#include "matrix_product.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

template <typename T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix: expected 8 by 8");
  static_assert(is_floating_point_v<T>, "simdgroup_matrix: expected float, half or bfloat");
  using storage_type = vec<T, 2>;

  simdgroup_matrix() = default;
  // `diagonal` times the identity.
  explicit simdgroup_matrix(T diagonal) {
    const auto [row, column] = detail::own_place();
    for (uint i = 0; i < 2; ++i) elements_[i] = row == column + i ? diagonal : T(0);
  }

  storage_type& thread_elements() { return elements_; }
  const storage_type& thread_elements() const { return elements_; }

 private:
  storage_type elements_;
};

using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <typename T, int Columns, int Rows>
inline simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(detail::NoDeduce<T> value) {
  simdgroup_matrix<T, Columns, Rows> result;
  result.thread_elements() = vec<T, 2>(value, value);
  return result;
}

// Each lane reads its own two elements. The origin is (column, row) in the source; transposing swaps the
// roles of rows and columns of the tile, not of the origin.
template <typename T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, const T* source, ulong elements_per_row = 8,
                           ulong2 matrix_origin = 0, bool transpose_matrix = false) {
  const auto [row, column] = detail::own_place();
  const T* tile = source + matrix_origin[1] * elements_per_row + matrix_origin[0];
  const ulong row_step = transpose_matrix ? 1 : elements_per_row;
  const ulong column_step = transpose_matrix ? elements_per_row : 1;
  const T* own = tile + row * row_step + column * column_step;
  auto& elements = matrix.thread_elements();
  elements[0] = own[0];
  elements[1] = own[column_step];
}

template <typename T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& matrix, detail::NoDeduce<T>* target,
                            ulong elements_per_row = 8, ulong2 matrix_origin = 0,
                            bool transpose_matrix = false) {
  const auto [row, column] = detail::own_place();
  T* tile = target + matrix_origin[1] * elements_per_row + matrix_origin[0];
  const ulong row_step = transpose_matrix ? 1 : elements_per_row;
  const ulong column_step = transpose_matrix ? elements_per_row : 1;
  T* own = tile + row * row_step + column * column_step;
  const auto& elements = matrix.thread_elements();
  own[0] = elements[0];
  own[column_step] = elements[1];
}

// d = a * b + c: each element is c plus the products in float, k ascending, rounded once to D.
template <typename D, typename A, typename B, typename C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b,
                                          const simdgroup_matrix<C, 8, 8>& c, uint site = PYTURBO_SITE) {
  const float2 sums =
      detail::matrix_product(a.thread_elements(), b.thread_elements(), float2(c.thread_elements()), site);
  d.thread_elements() = vec<D, 2>(D(sums[0]), D(sums[1]));
}

template <typename D, typename A, typename B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, uint site = PYTURBO_SITE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<float, 8, 8>(0.0f), site);
}

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
