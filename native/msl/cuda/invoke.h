// What generated kernels use beside <metal_stdlib>: the position of a thread, function constants, threadgroup
// memory.
#pragma once

#define PYTURBO_VARIANT cuda

#include "metal_stdlib"

#define PYTURBO_CONSTANT(type, slot) ::pyturbo::invoke::function_constant<type, PT_C##slot, PT_D##slot>
#define PYTURBO_THREADGROUP(slot, type, name) alignas(16) __shared__ type name

namespace pyturbo::invoke {

using msl::metal::uint;

// `constant T name [[function_constant(i)]]` of a shader, by its bits.
template <typename T, unsigned long bits, bool defined>
struct function_constant {
  constexpr operator T() const {
    if constexpr (sizeof(T) == 4)
      return msl::metal::detail::bit_cast<T>(uint(bits));
    else
      return T(bits);
  }
};
template <typename T, unsigned long bits, bool defined>
constexpr bool is_function_constant_defined(const function_constant<T, bits, defined>&) {
  return defined;
}

// What is bound at [[threadgroup(n)]] is at an offset in it.
alignas(128) extern __shared__ unsigned char shared_memory[];

// Waits for the launches that this one depends on: edges of graphs may leave that to kernels.
inline void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets launches start that wait for this one. Threadgroups that started earlier would gather on those
// multiprocessors that are free first.
inline void end() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A position in the parameter's own type: a scalar takes x.
template <typename P>
struct Coordinates {
  static P from(uint3 e) { return P(e.x); }
};
template <typename T>
struct Coordinates<msl::metal::vec<T, 2>> {
  static msl::metal::vec<T, 2> from(uint3 e) { return {T(e.x), T(e.y)}; }
};
template <typename T>
struct Coordinates<msl::metal::vec<T, 3>> {
  static msl::metal::vec<T, 3> from(uint3 e) { return {T(e.x), T(e.y), T(e.z)}; }
};

inline uint thread_index() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline uint parts(uint width) { return (blockDim.x * blockDim.y * blockDim.z + width - 1) / width; }

#define PYTURBO_POSITION(name, ...)                  \
  template <typename P>                              \
  inline P name() {                                  \
    return Coordinates<P>::from(uint3{__VA_ARGS__}); \
  }
PYTURBO_POSITION(thread_position_in_grid, blockIdx.x* blockDim.x + threadIdx.x,
                 blockIdx.y* blockDim.y + threadIdx.y, blockIdx.z* blockDim.z + threadIdx.z)
PYTURBO_POSITION(thread_position_in_threadgroup, threadIdx.x, threadIdx.y, threadIdx.z)
PYTURBO_POSITION(threadgroup_position_in_grid, blockIdx.x, blockIdx.y, blockIdx.z)
PYTURBO_POSITION(threads_per_grid, gridDim.x* blockDim.x, gridDim.y* blockDim.y, gridDim.z* blockDim.z)
PYTURBO_POSITION(threads_per_threadgroup, blockDim.x, blockDim.y, blockDim.z)
PYTURBO_POSITION(dispatch_threads_per_threadgroup, blockDim.x, blockDim.y, blockDim.z)
PYTURBO_POSITION(threadgroups_per_grid, gridDim.x, gridDim.y, gridDim.z)
PYTURBO_POSITION(thread_index_in_threadgroup, thread_index())
PYTURBO_POSITION(thread_index_in_simdgroup, thread_index() % 32)
PYTURBO_POSITION(simdgroup_index_in_threadgroup, thread_index() / 32)
PYTURBO_POSITION(threads_per_simdgroup, 32)
PYTURBO_POSITION(thread_execution_width, 32)
PYTURBO_POSITION(simdgroups_per_threadgroup, parts(32))
PYTURBO_POSITION(dispatch_simdgroups_per_threadgroup, parts(32))
PYTURBO_POSITION(thread_index_in_quadgroup, thread_index() % 4)
PYTURBO_POSITION(quadgroup_index_in_threadgroup, thread_index() / 4)
PYTURBO_POSITION(quadgroups_per_threadgroup, parts(4))
PYTURBO_POSITION(dispatch_quadgroups_per_threadgroup, parts(4))
#undef PYTURBO_POSITION

}  // namespace pyturbo::invoke
