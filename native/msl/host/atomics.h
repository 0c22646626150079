// Relaxed atomic accesses, all of them __atomic builtins.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

template <typename T>
inline T atomic_load(const volatile T* object) {
  T value;
  __atomic_load(object, &value, __ATOMIC_RELAXED);
  return value;
}

template <typename T>
inline void atomic_store(volatile T* object, T desired) {
  __atomic_store(object, &desired, __ATOMIC_RELAXED);
}

template <typename T>
inline T atomic_exchange(volatile T* object, T desired) {
  T previous;
  __atomic_exchange(object, &desired, &previous, __ATOMIC_RELAXED);
  return previous;
}

template <typename T>
inline bool atomic_compare_exchange(volatile T* object, T* expected, T desired) {
  return __atomic_compare_exchange(object, expected, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

#define PYTURBO_FETCH(name)                                    \
  template <typename T>                                        \
  inline T atomic_##name(volatile T* object, T operand) {      \
    return __atomic_##name(object, operand, __ATOMIC_RELAXED); \
  }
PYTURBO_FETCH(fetch_add)
PYTURBO_FETCH(fetch_sub)
PYTURBO_FETCH(fetch_and)
PYTURBO_FETCH(fetch_or)
PYTURBO_FETCH(fetch_xor)
#undef PYTURBO_FETCH

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
