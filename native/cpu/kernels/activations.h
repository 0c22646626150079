// Activations as integers, made once per batch: each group of a row has the scale max|x| / kTop and integers
// x / scale rounded to nearest, of 24 bits (three planes of bytes, the high one first) or 8 bits (one plane).
// For the larger values of a group, 24 bits are as precise as f32. A group that holds NaN or inf gets NaN as
// its scale, which reaches every result of its row.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// An order of the bytes of a row: each of the `classes` vectors of a block holds every `classes`-th piece of
// `piece` values. Codes are unpacked to vectors by shifts and masks alone, and activations follow them.
struct ByteOrder {
  uint32_t piece, classes;

  constexpr uint32_t block() const { return classes * kBytes; }

  // The byte of a block that is for its value number `value`.
  constexpr uint32_t place(uint32_t value) const {
    return value / piece % classes * kBytes + value / piece / classes * piece + value % piece;
  }
};
constexpr ByteOrder kNatural = {1, 1};

// The order of activations for weights of `bits` bits.
template <uint32_t bits>
struct Order {
  static constexpr uint32_t kClasses = bits == 2 ? 4 : bits == 4 ? 2 : 1;
  static constexpr ByteOrder kByteOrder = {1, kClasses};
  static constexpr uint32_t kBlock = kClasses * kBytes;       // values that are unpacked together
  static constexpr uint32_t kBlockBytes = kBlock / 8 * bits;  // of the weights
  static constexpr uint32_t kLaneValues = 4 * kClasses;       // consecutive values that one 32-bit lane sums
};

constexpr uint32_t kRowBlock = 16;  // rows of a matrix whose scales are prepared together
constexpr uint32_t kShortRow =
    32;  // most groups of a row whose scales are prepared together with those of other rows

// The rows of a launch. After the groups of a row come zeros up to a multiple of kLanes, and kLanes more.
// With `repeated`, the groups come kRowBlock times before the zeros.
struct Activations {
  const float* values;   // [rows, in]
  const int8_t* planes;  // [rows, blocks, planes, classes, kBytes]
  const float* scales;   // [rows, stride]
  const float* sums;     // [rows, stride]: sum of the group's integers times its scale
  uint64_t row_bytes;    // of planes
  uint64_t stride;
  bool repeated;
  const float* packed = nullptr;  // the values as packed_tokens.h has them, or null

  // The integers of columns from `column` on, the first of a block, where a group is of 2^group_shift, and
  // bytes have `count` planes.
  Activations from_column(uint32_t column, uint32_t group_shift, uint32_t count) const {
    const uint32_t group = column >> group_shift;
    return {nullptr, planes + uint64_t(column) * count, scales + group, sums + group, row_bytes, stride,
            repeated};
  }

  // The integers from `row` on.
  Activations from(uint64_t row) const {
    return {nullptr, planes + row * row_bytes, scales + row * stride, sums + row * stride, row_bytes, stride,
            repeated};
  }
};

constexpr uint32_t kLargestGroup = 128;
constexpr float kLeastMaximum =
    0x1p-100f;  // of a group; a smaller one counts as zeros: its scale would be subnormal

template <uint32_t planes>
constexpr int32_t kTop = planes == 3 ? 127 * 65536 : 127;  // room for one that rounding makes larger

// One group into planes of bytes in natural order, from place `at` on; returns the scale.
template <uint32_t planes>
PYTURBO_INLINE float quantize_group(const float* x, uint32_t group, int8_t (*bytes)[kLargestGroup],
                                    uint32_t at, float* total) {
  I32 most = {};
  for (uint32_t i = 0; i < group; i += kLanes) most = larger(most, magnitude(load_floats(x + i)));
  const int32_t bits = largest(most);
  float maximum;
  std::memcpy(&maximum, &bits, sizeof maximum);
  const bool visible = bits < 0x7f800000;
  const bool flat = !visible || maximum < kLeastMaximum;
  const F32 inverse = splat(flat ? 0.0f : float(kTop<planes>) / maximum);
  const float scale = !visible ? __builtin_nanf("") : flat ? 0.0f : maximum / float(kTop<planes>);
  I32 integers[2] = {};  // sums of high and of low parts: one of the whole might overflow
  for (uint32_t i = 0; i < group; i += kLanes) {
    const I32 v = flat ? I32{} : to_nearest(load_floats(x + i) * inverse);
    if constexpr (planes == 3) {
      const I32 upper = (v + 128) >> 8;
      const I32 highest = (upper + 128) >> 8;
      store_vector(bytes[0] + at + i, low_bytes(highest));
      store_vector(bytes[1] + at + i, low_bytes(upper - (highest << 8)));
      store_vector(bytes[2] + at + i, low_bytes(v - (upper << 8)));
      integers[0] += upper;
      integers[1] += v - (upper << 8);
    } else {
      store_vector(bytes[0] + at + i, low_bytes(v));
      integers[1] += v;
    }
  }
  *total = scale * (float(sum(integers[0])) * 256.0f + float(sum(integers[1])));
  return scale;
}

// Bytes of a unit of weights' order: class c gets every `classes`-th of 32 bytes.
template <uint32_t classes>
PYTURBO_INLINE void split_unit(const int8_t* natural, int8_t* target) {
  typedef uint16_t Pairs __attribute__((vector_size(32)));
  typedef uint32_t Fours __attribute__((vector_size(32)));
  typedef uint8_t Bytes16 __attribute__((vector_size(16)));
  typedef uint8_t Bytes8 __attribute__((vector_size(8)));
  if constexpr (classes == 2) {
    const Pairs v = load_vector<Pairs>(natural);
    store_vector(target, __builtin_convertvector(v & 0xff, Bytes16));
    store_vector(target + kBytes, __builtin_convertvector(v >> 8, Bytes16));
  } else {
    const Fours v = load_vector<Fours>(natural);
#pragma GCC unroll 4
    for (uint32_t c = 0; c < 4; ++c)
      store_vector(target + c * kBytes, __builtin_convertvector((v >> (8 * c)) & 0xff, Bytes8));
  }
}

// One row of `in` values. The bytes past `in` are zeros already.
template <ByteOrder order, uint32_t planes>
static void quantize_row(const float* x, uint32_t in, uint32_t group, int8_t* bytes, float* scales,
                         float* sums) {
  constexpr uint32_t kBlock = order.block();
  constexpr uint32_t kUnit = kBlock < 32 ? kBlock : 32;  // values inside one block
  const uint32_t span = group < kUnit ? kUnit : group;
  alignas(64) int8_t natural[planes][kLargestGroup];
  for (uint32_t begin = 0; begin < in; begin += span) {
    for (uint32_t i = 0; i < span; i += group) {
      const uint32_t g = (begin + i) / group;
      scales[g] = quantize_group<planes>(x + begin + i, group, natural, i, sums + g);
    }
    for (uint32_t i = 0; i < span; i += kUnit) {
      const uint32_t value = begin + i;
      int8_t* target = bytes + uint64_t(value / kBlock) * planes * kBlock;
#pragma GCC unroll 3
      for (uint32_t plane = 0; plane < planes; ++plane) {
        const int8_t* from = natural[plane] + i;
        int8_t* to = target + plane * kBlock;
        if constexpr (order.classes == 1)
          std::memcpy(to + value % kBlock, from, kUnit);
        else if constexpr (order.piece == 1)
          split_unit<order.classes>(from, to + value % kBlock / order.classes);
        else
          for (uint32_t at = 0; at < kUnit; at += order.piece)
            std::memcpy(to + order.place(value % kBlock + at), from + at, order.piece);
      }
    }
  }
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
