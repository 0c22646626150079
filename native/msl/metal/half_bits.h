// The bits of half and bfloat: conversions to and from float by integer operations, also at compile time.
#pragma once

#include "metal/type_traits.h"

namespace msl::metal {
inline namespace PYTURBO_VARIANT {
namespace detail {

// IEEE binary16. A signalling NaN becomes quiet when a float is encoded, never when a half is decoded.
struct HalfBits {
  static constexpr float decode(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | magnitude << 13);
    // Processors take long over subnormal floats, so those of a half are not made from its bits.
    const uint32_t value = magnitude < 0x400u ? bit_cast<uint32_t>(float(magnitude) * 0x1p-24f)
                                              : (magnitude << 13) + 0x38000000u;  // exponent bias 15 -> 127
    return bit_cast<float>(sign | value);
  }
  static constexpr uint16_t encode(float value) {
    const uint32_t word = bit_cast<uint32_t>(value);
    const uint32_t sign = word >> 16 & 0x8000u, magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and above round to infinity
    if (magnitude < 0x38800000u) {                                  // below 2^-14: the ulp of 0.5f is 2^-24
      const float shifted = bit_cast<float>(magnitude) + 0.5f;
      return uint16_t(sign | (bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return uint16_t(sign | (rounded - 0x38000000u) >> 13);
  }
};

// The upper half of a float.
struct BfloatBits {
  static constexpr float decode(uint16_t bits) { return bit_cast<float>(uint32_t(bits) << 16); }
  static constexpr uint16_t encode(float value) {
    const uint32_t word = bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return uint16_t(word >> 16 | 0x40u);
    return uint16_t((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
};

}  // namespace detail
}  // namespace PYTURBO_VARIANT
}  // namespace msl::metal
