// Barriers of blocks and warps. Both order all memory that their threads share.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

inline constexpr uint kMemNone = 0, kMemDevice = 1, kMemThreadgroup = 2;

inline void threadgroup_barrier(uint, uint) { ::__syncthreads(); }
inline void simdgroup_barrier(uint, uint) { ::__syncwarp(); }

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
