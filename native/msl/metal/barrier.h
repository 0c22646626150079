// Barriers. `site` identifies the barrier at which divergent threads wait; the source line by default.
#pragma once

#include "metal/type_traits.h"
#include "pyturbo/simt.h"

namespace metal {
inline namespace PYTURBO_VARIANT {

enum class mem_flags : uint {
  mem_none = pyturbo::simt::kMemNone,
  mem_device = pyturbo::simt::kMemDevice,
  mem_threadgroup = pyturbo::simt::kMemThreadgroup,
  mem_texture = 4,
};

constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

namespace detail {
constexpr uint ordered_memory(mem_flags flags) { return uint(flags) & ~uint(mem_flags::mem_texture); }
}  // namespace detail

inline void threadgroup_barrier(mem_flags flags, uint site = __builtin_LINE()) {
  pyturbo::simt::threadgroup_barrier(detail::ordered_memory(flags), site);
}
inline void simdgroup_barrier(mem_flags flags, uint site = __builtin_LINE()) {
  pyturbo::simt::simdgroup_barrier(detail::ordered_memory(flags), site);
}

}  // namespace PYTURBO_VARIANT
}  // namespace metal
