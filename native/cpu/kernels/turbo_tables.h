// The constants of the codec: those of the shaders, and tables derived from them.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

typedef unsigned int uint;
#define constant const
#include "../../../shaders/turboquant/tables.h"
#undef constant

constexpr uint32_t kMaxDim = 512;
constexpr uint32_t kMaxWords = kMaxDim * 8 / 32;  // of a row
constexpr float kMostByteSteps = 127.0f;          // as in codec.h

// What the scale of a row is multiplied with: 8-bit codes are numbers of codec.h's steps, others stand for
// centroids.
PYTURBO_INLINE constexpr float code_unit(uint32_t bits) { return bits == 8 ? 0.015625f : 1.0f; }

PYTURBO_INLINE uint32_t row_words(uint32_t dim, uint32_t bits) { return (dim * bits + 31) / 32; }

template <uint32_t bits>
constexpr const float* centroids() {
  static_assert(bits <= 6);
  return bits == 2 ? kCentroids2 : bits == 3 ? kCentroids3 : bits == 4 ? kCentroids4 : kCentroids6;
}

// Centroids, over and over up to a whole vector; and the midpoints between them.
template <uint32_t bits>
struct CodecTable {
  static constexpr uint32_t kCount = 1u << bits;
  static constexpr uint32_t kPadded = kCount > kLanes ? kCount : kLanes;
  alignas(64) float values[kPadded];
  float boundaries[kCount];

  constexpr CodecTable() : values(), boundaries() {
    for (uint32_t i = 0; i < kPadded; ++i) values[i] = centroids<bits>()[i % kCount];
    for (uint32_t i = 0; i + 1 < kCount; ++i) boundaries[i] = 0.5f * (values[i] + values[i + 1]);
  }

  // Whether the lower half is the negative of the upper one, from the middle on.
  constexpr bool mirrored() const {
    for (uint32_t i = 0; i < kCount; ++i)
      if (values[i] != -values[kCount - 1 - i]) return false;
    return true;
  }
};

template <uint32_t bits>
inline constexpr CodecTable<bits> kTable = CodecTable<bits>();

// The instance of a function template for a width of codes.
#define PYTURBO_BY_WIDTH(bits, function, ...) \
  switch (bits) {                             \
    case 2:                                   \
      return function<2>(__VA_ARGS__);        \
    case 3:                                   \
      return function<3>(__VA_ARGS__);        \
    case 4:                                   \
      return function<4>(__VA_ARGS__);        \
    case 6:                                   \
      return function<6>(__VA_ARGS__);        \
    default:                                  \
      return function<8>(__VA_ARGS__);        \
  }

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
