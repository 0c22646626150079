// Rows of a quantised matrix in arrays times few rows of activations, where vectors have 16 bytes: the exact
// dot products of four groups, a unit, become the lanes of one vector and are scaled together. The arithmetic
// of one result depends neither on the other rows nor on how many tokens there are.
#pragma once

#include "cpu/kernels/quantized_rows.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Sums of bytes of a unit, for each token and plane: integers, and the bits of a float in one lane of each
// group. A vector of sums has one group, or two where these share a block of codes.
template <typename Q, uint32_t group, uint32_t planes, uint32_t tokens>
class UnitSums {
 public:
  // Units after which sums are at most 2^22, as kFloatBits needs it: bytes of activations are at most 128.
  static constexpr uint32_t kMost = 1u << (22 - 7 - (Q::kBits == 8 ? 7 : Q::kBits) - __builtin_ctz(group));

  PYTURBO_INLINE UnitSums start() {
    UnitSums own;
    each([&](uint32_t t, uint32_t p) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (uint32_t v = 0; v < kVectors; ++v)
        own.sums_[v][t][p] = I32{kFloatBits, 0, kShared ? kFloatBits : 0, 0};
      own.before_[t][p] = splat(kFloatOfBits);
    });
    return own;
  }

  // Adds the products of a unit's codes with the bytes of the tokens, which are `stride` apart.
  [[gnu::always_inline]] void add(const uint8_t* packed, const int8_t* x, uint64_t stride) {
    const auto add_to = [&](I32(*sums)[planes], uint32_t block) __attribute__((always_inline)) {
      U8 codes[O::kClasses];
      unpack<Q>(packed + block * O::kBlockBytes, codes);
      add_block(codes, x + block * planes * O::kBlock, stride, sums);
    };
#pragma GCC unroll 4
    for (uint32_t v = 0; v < kVectors; ++v)
#pragma GCC unroll 8
      for (uint32_t b = 0; b < kBlocks; ++b) add_to(sums_[v], v * kBlocks + b);
  }

  // The same for the first `groups` groups of a unit, `offset` bytes into a row.
  [[gnu::always_inline]] void add_last(const Matrix& w, uint32_t row, uint64_t offset, uint32_t groups,
                                       const int8_t* x, uint64_t stride) {
#pragma GCC unroll 1
    for (uint32_t block = 0; block * O::kBlock < groups * group; ++block) {
      U8 codes[O::kClasses];
      unpack_block<Q>(w, row, offset + block * O::kBlockBytes, codes);
      add_block(codes, x + block * planes * O::kBlock, stride, sums_[block / kBlocks]);
    }
  }

  // What was added for a token since the last time, with a group in each lane: the difference of two floats,
  // which is exact.
  [[gnu::always_inline]] F32 added(uint32_t t) {
    F32 total;
#pragma GCC unroll 3
    for (uint32_t p = 0; p < planes; ++p) {
      const auto of = [&](uint32_t v) __attribute__((always_inline)) { return sums_[v][t][p]; };
      I32 sums = add_pairs(of(0), of(1));
      if constexpr (!kShared) sums = add_pairs(sums, add_pairs(of(2), of(3)));
      const F32 own = (F32)sums - before_[t][p];
      before_[t][p] = (F32)sums;
      total = p == 0 ? own : fused(total, splat(256), own);
    }
    return total;
  }

 private:
  using O = Order<Q::kBits>;
  static constexpr bool kShared = O::kBlock > group;
  static constexpr uint32_t kVectors = kShared ? kLanes / 2 : kLanes;
  static constexpr uint32_t kBlocks = kShared ? 1 : group / O::kBlock;  // of a vector

  template <typename Fn>
  PYTURBO_INLINE void each(const Fn& fn) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t)
#pragma GCC unroll 3
      for (uint32_t p = 0; p < planes; ++p) fn(t, p);
  }

  PYTURBO_INLINE void add_block(const U8* codes, const int8_t* x, uint64_t stride, I32 (*sums)[planes]) {
#pragma GCC unroll 4
    for (uint32_t c = 0; c < O::kClasses; ++c)
      each([&](uint32_t t, uint32_t p) __attribute__((always_inline)) {
        const S8 own = load_vector<S8>(x + t * stride + p * O::kBlock + c * kBytes);
        sums[t][p] = dot<kDotBits<Q>>(sums[t][p], codes[c], own);
      });
  }

  I32 sums_[kVectors][tokens][planes];
  F32 before_[tokens][planes];
};

// The scales and biases of a unit of a row, and of the groups at its end that are less than one.
template <typename Q, uint32_t group>
PYTURBO_INLINE GroupVector load_unit(const Matrix& w, uint32_t row, uint32_t unit) {
  const auto load = [&](auto type) __attribute__((always_inline)) {
    return load_groups_as<decltype(type)>(w, row, unit * kLanes, kLanes, float(Q::kOffset));
  };
  if constexpr (!Q::kFloats)
    return w.type == DType::f32 ? load(float{}) : w.type == DType::f16 ? load(Half{}) : load(BFloat{});
  else if constexpr (group == 16)
    return load(E4M3{});
  else
    return load(E8M0{});
}
[[gnu::noinline]] static GroupVector load_last_unit(const Matrix& w, uint32_t row, uint32_t unit,
                                                    float offset) {
  const uint32_t first = unit * kLanes;
  return by_scale_type(
      w, [&](auto type) { return load_groups_as<decltype(type)>(w, row, first, w.groups - first, offset); });
}

// As AddGroups says, for whole rows.
template <typename Q, uint32_t group, uint32_t planes, uint32_t tokens>
static void add_array_units(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                            RowBlock<tokens>& at) {
  using Sums = UnitSums<Q, group, planes, tokens>;
  constexpr uint32_t kUnit = kLanes * group, kUnitBytes = kUnit / 8 * Q::kBits;
  constexpr uint32_t kMost = tokens == 1 ? Sums::kMost : 1;
  const uint32_t units = w.groups / kLanes, rest = w.groups % kLanes;
  for (uint32_t i = 0; i < (step == 0 ? 1 : kRowsAtOnce<tokens>); ++i) {
    const uint32_t own = row + r + i;
    F32 acc[tokens];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) acc[t] = at.sums[t][r + i];
    const auto bytes_of = [&](uint32_t unit) { return x.planes + uint64_t(unit) * kUnit * planes; };
    const auto scale = [&](Sums& sums, uint32_t unit,
                           const GroupVector& groups) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t) {
        const uint64_t first = t * x.stride + unit * kLanes;
        if constexpr (!Q::kFloats) acc[t] = fused(groups.biases, load_floats(x.sums + first), acc[t]);
        acc[t] = fused(sums.added(t), groups.scales * load_floats(x.scales + first), acc[t]);
      }
    };
    for (uint32_t unit = 0; unit < units;) {
      Sums sums = Sums::start();
      for (const uint32_t end = least(unit + kMost, units); unit < end; ++unit) {
        sums.add(w.row(own) + uint64_t(unit) * kUnitBytes, bytes_of(unit), x.row_bytes);
        scale(sums, unit, load_unit<Q, group>(w, own, unit));
      }
    }
    if (rest > 0) {
      Sums sums = Sums::start();
      sums.add_last(w, own, uint64_t(units) * kUnitBytes, rest, bytes_of(units), x.row_bytes);
      scale(sums, units, load_last_unit(w, own, units, float(Q::kOffset)));
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) at.sums[t][r + i] = acc[t];
  }
}

// The same for groups of any size.
template <typename Q, uint32_t planes, uint32_t tokens>
static void add_array_rows(const Matrix& w, uint32_t row, uint32_t r, uint32_t step, const Activations& x,
                           uint32_t /*first*/, uint32_t /*last*/, RowBlock<tokens>& at) {
  const auto add = [&](auto units) __attribute__((always_inline)) { units(w, row, r, step, x, at); };
  if constexpr (Q::kFloats)
    add(w.group_shift == 4 ? add_array_units<Q, 16, planes, tokens> : add_array_units<Q, 32, planes, tokens>);
  else
    add(w.group_shift == 5   ? add_array_units<Q, 32, planes, tokens>
        : w.group_shift == 6 ? add_array_units<Q, 64, planes, tokens>
                             : add_array_units<Q, 128, planes, tokens>);
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
