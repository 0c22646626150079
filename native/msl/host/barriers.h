// Barriers of the executor.
#pragma once

#include "metal/type_traits.h"
#include "pyturbo/simt.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

using pyturbo::simt::kMemDevice;
using pyturbo::simt::kMemNone;
using pyturbo::simt::kMemThreadgroup;
using pyturbo::simt::simdgroup_barrier;
using pyturbo::simt::threadgroup_barrier;

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
