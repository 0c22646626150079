// metal::array<T, N>: an array that can be copied.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

template <typename T, size_t N>
struct array {
  T elements[N];

  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
  constexpr T* data() { return elements; }
  constexpr const T* data() const { return elements; }
  static constexpr size_t size() { return N; }
};

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
