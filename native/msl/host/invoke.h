// Connects generated tables with kernels: turns bound arguments and a position into a call of the kernel, and
// the C++ types of its parameters into the tables of the host. Include after <metal_stdlib>.
#pragma once

#include <compare>

#include "pyturbo/kernel.h"
#include "pyturbo/simt.h"

#include "metal/as_type.h"
#include "metal/atomic.h"
#include "metal/packed.h"

// Markers before statements and in functions (shaders/frontend/markers.py), for the checker.
#if defined(PYTURBO_MARK_STATEMENTS)
#define PYTURBO_AT(file, line) ::pyturbo::simt::set_statement(::pyturbo::simt::statement(file, line))
#define PYTURBO_FRAME const ::pyturbo::simt::Frame pt_frame
#else
#define PYTURBO_AT(file, line) void()
#define PYTURBO_FRAME
#endif

// A function constant, and a threadgroup variable, of a shader.
#define PYTURBO_CONSTANT(type, slot) ::pyturbo::invoke::function_constant<type, slot>
#define PYTURBO_THREADGROUP(slot, type, name) \
  type& name = *(type*)::pyturbo::simt::threadgroup_variable(slot, sizeof(type), alignof(type), #name)

// Names of Position and ArgumentKind that are address spaces in a shader.
#pragma push_macro("thread")
#pragma push_macro("threadgroup")
#undef thread
#undef threadgroup

namespace pyturbo::invoke {
inline namespace PYTURBO_VARIANT {

// ArgumentKind, by names a generated unit can write.
inline constexpr ArgumentKind kBuffer = ArgumentKind::buffer, kValue = ArgumentKind::value,
                              kThreadgroup = ArgumentKind::threadgroup;

// The element type for the host: the component of a vector, the value type of an atomic, raw for a struct.
template <typename T>
inline constexpr DType dtype = DType::raw;
#define PYTURBO_DTYPE(T, name) \
  template <>                  \
  inline constexpr DType dtype<T> = DType::name;
PYTURBO_DTYPE(float, f32)
PYTURBO_DTYPE(msl::metal::half, f16)
PYTURBO_DTYPE(msl::metal::bfloat, bf16)
PYTURBO_DTYPE(char, i8)
PYTURBO_DTYPE(signed char, i8)
PYTURBO_DTYPE(unsigned char, u8)
PYTURBO_DTYPE(short, i16)
PYTURBO_DTYPE(unsigned short, u16)
PYTURBO_DTYPE(int, i32)
PYTURBO_DTYPE(unsigned int, u32)
PYTURBO_DTYPE(long, i64)
PYTURBO_DTYPE(unsigned long, u64)
PYTURBO_DTYPE(long long, i64)
PYTURBO_DTYPE(unsigned long long, u64)
PYTURBO_DTYPE(bool, boolean)
#undef PYTURBO_DTYPE
template <typename T>
inline constexpr DType dtype<const T> = dtype<T>;
template <typename T>
inline constexpr DType dtype<volatile T> = dtype<T>;
template <typename T>
inline constexpr DType dtype<const volatile T> = dtype<T>;
template <typename T, int N>
inline constexpr DType dtype<msl::metal::vec<T, N>> = dtype<T>;
template <typename V, typename T, int N>
inline constexpr DType dtype<msl::metal::detail::Packed<V, T, N>> = dtype<T>;
template <typename T>
inline constexpr DType dtype<msl::metal::atomic<T>> = dtype<T>;

// The number of components of a value of the type.
template <typename T>
inline constexpr uint32_t components = 1;
template <typename T, int N>
inline constexpr uint32_t components<msl::metal::vec<T, N>> = N;
template <typename V, typename T, int N>
inline constexpr uint32_t components<msl::metal::detail::Packed<V, T, N>> = N;
template <typename T>
inline constexpr uint32_t components<const T> = components<T>;

// A kernel's function type, taken apart.
template <typename T>
struct Box {
  using type = T;
};
template <typename F>
struct Signature;
template <typename... P>
struct Signature<void(P...)> {
  template <uint32_t i, typename First, typename... Rest>
  static constexpr auto find() {
    if constexpr (i == 0)
      return Box<First>{};
    else
      return find<i - 1, Rest...>();
  }
  template <uint32_t i>
  using parameter = typename decltype(find<i, P...>())::type;

  template <auto kernel_function, typename... Roles>
  static void call(const Arguments& arguments, const Position& position) {
    kernel_function(Roles::template get<P>(arguments, position)...);
  }
};

template <typename T>
struct Pointee;
template <typename T>
struct Pointee<T*> {
  using type = T;
};
template <typename T>
struct Pointee<T&> {
  using type = T;
};
// The type that the i-th parameter of F points or refers to.
template <typename F, uint32_t i>
using pointee_t = typename Pointee<typename Signature<F>::template parameter<i>>::type;

template <typename F, uint32_t i>
constexpr ArgumentInfo argument(const char* name, const char* type, ArgumentKind kind, uint32_t index,
                                int32_t condition, uint32_t least_alignment) {
  using T = pointee_t<F, i>;
  const uint32_t alignment = alignof(T) > least_alignment ? uint32_t(alignof(T)) : least_alignment;
  const bool writable = kind != ArgumentKind::value && !msl::metal::is_const_v<T>;
  return {name, type, kind, writable, dtype<T>, index, sizeof(T), alignment, components<T>, condition};
}

// An integer of a contract. Overflow and division by zero give the end of the range, which is larger than any
// launch may be.
struct Count {
  int64_t n;
  template <typename T>
    requires(msl::metal::is_integral_v<T>)
  constexpr Count(T value)
      : n(!msl::metal::is_signed_v<T> && uint64_t(value) > uint64_t(INT64_MAX) ? INT64_MAX : int64_t(value)) {
  }
  constexpr explicit operator bool() const { return n != 0; }
  friend constexpr auto operator<=>(Count, Count) = default;
  friend constexpr Count operator+(Count a, Count b) {
    int64_t r;
    return __builtin_add_overflow(a.n, b.n, &r) ? end(a.n < 0) : r;
  }
  friend constexpr Count operator-(Count a, Count b) {
    int64_t r;
    return __builtin_sub_overflow(a.n, b.n, &r) ? end(a.n < 0) : r;
  }
  friend constexpr Count operator*(Count a, Count b) {
    int64_t r;
    return __builtin_mul_overflow(a.n, b.n, &r) ? end((a.n < 0) != (b.n < 0)) : r;
  }
  friend constexpr Count operator/(Count a, Count b) {
    return b.n == 0 ? INT64_MAX : b.n == -1 ? (Count(0) - a).n : a.n / b.n;
  }
  friend constexpr Count operator%(Count a, Count b) {
    return b.n == 0 ? INT64_MAX : b.n == -1 ? 0 : a.n % b.n;
  }
  static constexpr int64_t end(bool negative) { return negative ? INT64_MIN : INT64_MAX; }
};

// Integers become Counts so that a contract's arithmetic neither wraps nor mixes signs; other types stay.
template <typename T>
constexpr decltype(auto) widen(const T& value) {
  if constexpr (msl::metal::is_integral_v<T> && !msl::metal::is_same_v<T, bool>)
    return Count(value);
  else
    return (value);
}

// Returns the widened value at an address; zero for null, which is an argument that is not bound.
template <typename T>
inline decltype(auto) host_value(const void* address) {
  static const T absent{};
  return widen(address ? *static_cast<const T*>(address) : absent);
}

// Returns the value bound at [[buffer(index)]] for parameter i of F, for contracts.
template <typename F, uint32_t i>
inline decltype(auto) value(const Arguments& arguments, uint32_t index) {
  return host_value<msl::metal::remove_cv_t<pointee_t<F, i>>>(arguments.buffers[index]);
}

// Returns the value of a function constant, for contracts.
template <typename T, uint32_t i>
inline decltype(auto) constant_value(const Arguments& arguments) {
  return host_value<T>(arguments.constants[i]);
}

// `constant T name [[function_constant(i)]]` of a shader. Undefined constants read as zero.
template <typename T, uint32_t i>
struct function_constant {
  operator T() const {
    const void* address = simt::function_constant(i);
    return address ? *static_cast<const T*>(address) : T{};
  }
};
template <typename T, uint32_t i>
inline bool is_function_constant_defined(const function_constant<T, i>&) {
  return simt::function_constant(i) != nullptr;
}

// Functions of contracts. An undefined quotient is larger than any launch may be.
constexpr Count ceil_div(Count a, Count b) { return b > 0 ? a / b + int(a % b > 0) : Count(INT64_MAX); }
constexpr Count min(Count a, Count b) { return b < a ? b : a; }
constexpr Count max(Count a, Count b) { return a < b ? b : a; }
// A side of an Extent. A value that does not fit becomes the largest one, which the launch check refuses.
constexpr uint32_t narrow(Count side) {
  return side < 0 || side > UINT32_MAX ? UINT32_MAX : uint32_t(side.n);
}
// The number of elements of a shape: 0 if an extent is not positive, the largest value on overflow.
template <typename... E>
constexpr int64_t elements(E... extents) {
  return (... && (Count(extents) > 0)) ? (Count(1) * ... * Count(extents)).n : 0;
}

// Roles: how one parameter of a kernel gets its value.
template <uint32_t i>
struct role_buffer {
  template <typename P>
  static P get(const Arguments& arguments, const Position&) {
    return static_cast<P>(arguments.buffers[i]);
  }
};
template <uint32_t i>
struct role_value {
  template <typename P>
  static P get(const Arguments& arguments, const Position&) {
    return *static_cast<typename msl::metal::remove_reference_t<P>*>(arguments.buffers[i]);
  }
};
template <uint32_t i>
struct role_threadgroup {
  template <typename P>
  static P get(const Arguments&, const Position&) {
    return static_cast<P>(simt::threadgroup_argument(i));
  }
};

// A position in the parameter's own type: a scalar takes x.
template <typename P>
struct Coordinates {
  static P from(Extent e) { return P(e.x); }
};
template <typename T>
struct Coordinates<msl::metal::vec<T, 2>> {
  static msl::metal::vec<T, 2> from(Extent e) { return {T(e.x), T(e.y)}; }
};
template <typename T>
struct Coordinates<msl::metal::vec<T, 3>> {
  static msl::metal::vec<T, 3> from(Extent e) { return {T(e.x), T(e.y), T(e.z)}; }
};

constexpr Extent product(Extent a, Extent b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }
constexpr Extent sum(Extent a, Extent b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
constexpr uint32_t parts(Extent threads, uint32_t width) {
  return (threads.x * threads.y * threads.z + width - 1) / width;
}

#define PYTURBO_ROLE(name, ...)                                          \
  struct role_##name {                                                   \
    template <typename P>                                                \
    static P get(const Arguments&, [[maybe_unused]] const Position& p) { \
      return Coordinates<P>::from(Extent __VA_ARGS__);                   \
    }                                                                    \
  };
PYTURBO_ROLE(thread_position_in_grid, (sum(product(p.group, p.threads_per_group), p.thread)))
PYTURBO_ROLE(thread_position_in_threadgroup, (p.thread))
PYTURBO_ROLE(threadgroup_position_in_grid, (p.group))
PYTURBO_ROLE(threads_per_grid, (product(p.groups, p.threads_per_group)))
PYTURBO_ROLE(threads_per_threadgroup, (p.threads_per_group))
PYTURBO_ROLE(dispatch_threads_per_threadgroup, (p.threads_per_group))
PYTURBO_ROLE(threadgroups_per_grid, (p.groups))
PYTURBO_ROLE(grid_origin, {0, 0, 0})
PYTURBO_ROLE(grid_size, (product(p.groups, p.threads_per_group)))
PYTURBO_ROLE(thread_index_in_threadgroup, {p.index})
PYTURBO_ROLE(thread_index_in_simdgroup, {p.index % kSimdWidth})
PYTURBO_ROLE(simdgroup_index_in_threadgroup, {p.index / kSimdWidth})
PYTURBO_ROLE(threads_per_simdgroup, {kSimdWidth})
PYTURBO_ROLE(thread_execution_width, {kSimdWidth})
PYTURBO_ROLE(simdgroups_per_threadgroup, {parts(p.threads_per_group, kSimdWidth)})
PYTURBO_ROLE(dispatch_simdgroups_per_threadgroup, {parts(p.threads_per_group, kSimdWidth)})
PYTURBO_ROLE(thread_index_in_quadgroup, {p.index % 4})
PYTURBO_ROLE(quadgroup_index_in_threadgroup, {p.index / 4})
PYTURBO_ROLE(quadgroups_per_threadgroup, {parts(p.threads_per_group, 4)})
PYTURBO_ROLE(dispatch_quadgroups_per_threadgroup, {parts(p.threads_per_group, 4)})
#undef PYTURBO_ROLE

// Runs one thread of the kernel: KernelInfo::body. One role per parameter, in order.
template <auto kernel_function, typename... Roles>
void body(const Arguments& arguments, const Position& position) {
  using F = msl::metal::remove_pointer_t<msl::metal::remove_cv_t<decltype(kernel_function)>>;
  Signature<F>::template call<kernel_function, Roles...>(arguments, position);
}

}  // namespace PYTURBO_VARIANT
}  // namespace pyturbo::invoke

#pragma pop_macro("threadgroup")
#pragma pop_macro("thread")
