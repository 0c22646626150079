// Relaxed atomics on device and threadgroup memory.
#pragma once

#include "atomics.h"

namespace msl::metal {
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
  return detail::atomic_load(&object->value);
}

template <typename T>
inline void atomic_store_explicit(volatile atomic<T>* object, detail::NoDeduce<T> desired, memory_order) {
  detail::atomic_store(&object->value, desired);
}

template <typename T>
inline T atomic_exchange_explicit(volatile atomic<T>* object, detail::NoDeduce<T> desired, memory_order) {
  return detail::atomic_exchange(&object->value, desired);
}

// Compares the bits. Never fails spuriously here; with Metal it may.
template <typename T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected,
                                                  detail::NoDeduce<T> desired, memory_order, memory_order) {
  return detail::atomic_compare_exchange(&object->value, expected, desired);
}

// Each returns the previous value.
#define PYTURBO_FETCH_INTEGER(name)                                                                          \
  template <detail::Integer T>                                                                               \
  inline T atomic_##name##_explicit(volatile atomic<T>* object, detail::NoDeduce<T> operand, memory_order) { \
    return detail::atomic_##name(&object->value, operand);                                                   \
  }
#define PYTURBO_FETCH_LOOP(name, concept_, expression)                                                       \
  template <concept_ T>                                                                                      \
  inline T atomic_##name##_explicit(volatile atomic<T>* object, detail::NoDeduce<T> operand, memory_order) { \
    T old = detail::atomic_load(&object->value), desired;                                                    \
    do desired = expression;                                                                                 \
    while (!detail::atomic_compare_exchange(&object->value, &old, desired));                                 \
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
}  // namespace msl::metal
