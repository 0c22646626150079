// Barriers.
#pragma once

#include "barriers.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {

enum class mem_flags : uint {
  mem_none = detail::kMemNone,
  mem_device = detail::kMemDevice,
  mem_threadgroup = detail::kMemThreadgroup,
  mem_texture = 4,
};

constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

namespace detail {
constexpr uint ordered_memory(mem_flags flags) { return uint(flags) & ~uint(mem_flags::mem_texture); }
}  // namespace detail

inline void threadgroup_barrier(mem_flags flags, uint site = PYTURBO_SITE) {
  detail::threadgroup_barrier(detail::ordered_memory(flags), site);
}
inline void simdgroup_barrier(mem_flags flags, uint site = PYTURBO_SITE) {
  detail::simdgroup_barrier(detail::ordered_memory(flags), site);
}

}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
