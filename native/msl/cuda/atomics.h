// Relaxed atomic accesses to values of 4 and 8 bytes; others can be loaded and stored.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// The unsigned integer of the same size that CUDA's functions take.
template <typename T>
using Word = conditional_t<sizeof(T) == 8, unsigned long long, uint>;

template <typename T>
inline Word<T>* word(volatile T* object) {
  static_assert(sizeof(T) == sizeof(Word<T>), "atomic: expected 4 or 8 bytes");
  return (Word<T>*)object;
}

template <typename T>
inline T atomic_load(const volatile T* object) {
  return *object;
}

template <typename T>
inline void atomic_store(volatile T* object, T desired) {
  *object = desired;
}

template <typename T>
inline T atomic_exchange(volatile T* object, T desired) {
  return bit_cast<T>(::atomicExch(word(object), bit_cast<Word<T>>(desired)));
}

template <typename T>
inline bool atomic_compare_exchange(volatile T* object, T* expected, T desired) {
  const auto old = bit_cast<Word<T>>(*expected);
  const auto found = ::atomicCAS(word(object), old, bit_cast<Word<T>>(desired));
  *expected = bit_cast<T>(found);
  return found == old;
}

#define PYTURBO_FETCH(name, function, operand_)                      \
  template <typename T>                                              \
  inline T atomic_##name(volatile T* object, T operand) {            \
    return bit_cast<T>(::function(word(object), Word<T>(operand_))); \
  }
PYTURBO_FETCH(fetch_add, atomicAdd, operand)
PYTURBO_FETCH(fetch_sub, atomicAdd, 0 - Word<T>(operand))
PYTURBO_FETCH(fetch_and, atomicAnd, operand)
PYTURBO_FETCH(fetch_or, atomicOr, operand)
PYTURBO_FETCH(fetch_xor, atomicXor, operand)
#undef PYTURBO_FETCH

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
