// as_type<T>(x): the same bits, read as another type of the same size.
#pragma once

#include "metal/vec.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

template <typename T, typename U>
inline T as_type(const U& value) {
  const detail::plain_t<U> source = value;
  static_assert(sizeof(T) == sizeof(source), "as_type: expected types of one size");
  T result;
  PYTURBO_BUILTIN(memcpy)(static_cast<void*>(&result), &source, sizeof(T));
  return result;
}

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
