// How half and bfloat are converted: by one instruction, by their bits at compile time. A NaN keeps no
// payload.
#pragma once

#include "metal/half_bits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

struct HalfFormat {
  static constexpr float decode(uint16_t bits) {
    if (__builtin_is_constant_evaluated()) return HalfBits::decode(bits);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static constexpr uint16_t encode(float value) {
    if (__builtin_is_constant_evaluated()) return HalfBits::encode(value);
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
};

#if __CUDA_ARCH__ < 800
using BfloatFormat = BfloatBits;
#else
struct BfloatFormat : BfloatBits {
  static constexpr uint16_t encode(float value) {
    if (__builtin_is_constant_evaluated()) return BfloatBits::encode(value);
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
};
#endif

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
