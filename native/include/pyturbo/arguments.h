// Building blocks of the argument structs that the front end generates for host code
// (shaders/frontend/host.py).
//
// A CPU body is compiled once per instruction set with different flags, so nothing here may become a symbol
// that the linker shares: functions are static and always inlined.
#pragma once

#include <cstdint>

#include "pyturbo/kernel.h"

namespace pyturbo {

// 16-bit floats as stored in memory.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// The element type that a type of the host stands for.
template <typename T>
inline constexpr DType dtype_of = DType::raw;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat> = DType::bf16;
template <>
inline constexpr DType dtype_of<int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<uint32_t> = DType::u32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<uint64_t> = DType::u64;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

// The structs of one kernel: one for each combination of types that its instances use.
template <typename... A>
struct Forms {};

namespace read {

// The address bound at [[buffer(index)]].
template <typename T>
[[gnu::always_inline]] static inline T* buffer(const Arguments& launch, uint32_t index) {
  return static_cast<T*>(launch.buffers[index]);
}

// The value bound there.
template <typename T>
[[gnu::always_inline]] static inline T value(const Arguments& launch, uint32_t index) {
  return *static_cast<const T*>(launch.buffers[index]);
}

// The function constant of that slot; zero where it is not defined.
template <typename T>
[[gnu::always_inline]] static inline T constant(const Arguments& launch, uint32_t slot) {
  const void* address = launch.constants[slot];
  return address ? *static_cast<const T*>(address) : T{};
}

}  // namespace read
}  // namespace pyturbo
