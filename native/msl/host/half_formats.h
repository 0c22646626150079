// How half and bfloat are converted: by their bits.
#pragma once

#include "metal/half_bits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

using HalfFormat = HalfBits;
using BfloatFormat = BfloatBits;

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
