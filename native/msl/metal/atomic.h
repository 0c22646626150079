// Relaxed atomics on device and threadgroup memory. All accesses are __atomic builtins.
#pragma once

#include "metal/type_traits.h"

namespace metal {
inline namespace PYTURBO_VARIANT {

enum memory_order { memory_order_relaxed };

template <typename T>
struct atomic {
  static_assert(is_integral_v<T> || is_same_v<T, float>, "atomic: expected an integer, bool or float");
  T value;
};

using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_ulong = atomic<ulong>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;

template <typename T>
inline T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
  T value;
  __atomic_load(&object->value, &value, __ATOMIC_RELAXED);
  return value;
}

template <typename T>
inline void atomic_store_explicit(volatile atomic<T>* object, detail::NoDeduce<T> desired, memory_order) {
  __atomic_store(&object->value, &desired, __ATOMIC_RELAXED);
}

template <typename T>
inline T atomic_exchange_explicit(volatile atomic<T>* object, detail::NoDeduce<T> desired, memory_order) {
  T previous;
  __atomic_exchange(&object->value, &desired, &previous, __ATOMIC_RELAXED);
  return previous;
}

// Compares the bits. Never fails spuriously here; on the GPU it may.
template <typename T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected,
                                                  detail::NoDeduce<T> desired, memory_order, memory_order) {
  return __atomic_compare_exchange(&object->value, expected, &desired, false, __ATOMIC_RELAXED,
                                   __ATOMIC_RELAXED);
}

// Each returns the previous value.
#define PYTURBO_FETCH_INTEGER(name)                                                                          \
  template <detail::Integer T>                                                                               \
  inline T atomic_##name##_explicit(volatile atomic<T>* object, detail::NoDeduce<T> operand, memory_order) { \
    return __atomic_##name(&object->value, operand, __ATOMIC_RELAXED);                                       \
  }
#define PYTURBO_FETCH_LOOP(name, concept_, expression)                                                       \
  template <concept_ T>                                                                                      \
  inline T atomic_##name##_explicit(volatile atomic<T>* object, detail::NoDeduce<T> operand, memory_order) { \
    T old = atomic_load_explicit(object, memory_order_relaxed), desired;                                     \
    do desired = expression;                                                                                 \
    while (!__atomic_compare_exchange(&object->value, &old, &desired, false, __ATOMIC_RELAXED,               \
                                      __ATOMIC_RELAXED));                                                    \
    return old;                                                                                              \
  }
PYTURBO_FETCH_INTEGER(fetch_add)
PYTURBO_FETCH_INTEGER(fetch_sub)
PYTURBO_FETCH_INTEGER(fetch_and)
PYTURBO_FETCH_INTEGER(fetch_or)
PYTURBO_FETCH_INTEGER(fetch_xor)
PYTURBO_FETCH_LOOP(fetch_min, detail::Integer, operand < old ? operand : old)
PYTURBO_FETCH_LOOP(fetch_max, detail::Integer, old < operand ? operand : old)
PYTURBO_FETCH_LOOP(fetch_add, detail::Real, old + operand)
PYTURBO_FETCH_LOOP(fetch_sub, detail::Real, old - operand)
#undef PYTURBO_FETCH_INTEGER
#undef PYTURBO_FETCH_LOOP

}  // namespace PYTURBO_VARIANT
}  // namespace metal
