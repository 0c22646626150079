// A quantised matrix in the MLX layout (shaders/affine/affine.h).
#pragma once

#include "cpu/kernels/unpack.h"
#include "pyturbo/kernel.h"

namespace pyturbo::cpu::PYTURBO_ISA {

struct Matrix {
  const uint8_t* packed;  // [out, row_bytes]
  const void* scales;     // [out, groups] of `type`
  const void* biases;
  DType type;
  uint32_t out;
  uint32_t in;
  uint32_t group_shift;  // log2 of the values of a group
  uint32_t groups;       // of a row
  uint64_t row_bytes;

  Matrix(const void* packed, const void* scales, const void* biases, DType type, uint32_t bits, uint32_t out,
         uint32_t in, uint32_t group_size)
      : packed(static_cast<const uint8_t*>(packed)),
        scales(scales),
        biases(biases),
        type(type),
        out(out),
        in(in),
        group_shift(uint32_t(__builtin_ctz(group_size))),
        groups(in / group_size),
        row_bytes(uint64_t(in) / 32 * bits * 4) {}

  const uint8_t* row(uint32_t r) const { return packed + r * row_bytes; }
};

// The codes of the block that starts `offset` bytes into a row. What a block has past the row is undefined,
// and meets zeros.
template <uint32_t bits>
PYTURBO_INLINE void unpack_block(const Matrix& w, uint32_t row, uint64_t offset, U8* codes) {
  const uint8_t* from = w.row(row) + offset;
  if (uint64_t(w.out - row) * w.row_bytes - offset >= Order<bits>::kBlockBytes)
    unpack<bits>(from, codes);
  else
    unpack_part<bits>(from, uint32_t(w.row_bytes - offset), codes);
}

// Scales and biases of kLanes groups; those past the last one asked for are zeros.
struct GroupVector {
  F32 scales;
  F32 biases;
};

// `count` groups of a row and of those behind it, from `group` on. With an offset o, codes stand for code +
// o: bias + o * scale is the bias then.
template <typename S>
PYTURBO_INLINE GroupVector load_groups_as(const Matrix& w, uint32_t row, uint32_t group, uint32_t count,
                                          float offset) {
  const uint64_t place = uint64_t(row) * w.groups + group;
  const S* scales = static_cast<const S*>(w.scales) + place;
  const S* biases = static_cast<const S*>(w.biases) + place;
  GroupVector v;
  if (count >= kLanes) {
    v = {load_floats(scales), load_floats(biases)};
  } else {
    const uint64_t readable = uint64_t(w.out) * w.groups - place;
    v = {load_floats(scales, count, readable), load_floats(biases, count, readable)};
  }
  if (offset != 0) v.biases = fused(v.scales, splat(offset), v.biases);
  return v;
}

// The groups of a row from `group` on.
PYTURBO_INLINE GroupVector load_groups(const Matrix& w, uint32_t row, uint32_t group, float offset) {
  const uint32_t count = w.groups - group;
  if (w.type == DType::f32) return load_groups_as<float>(w, row, group, count, offset);
  if (w.type == DType::f16) return load_groups_as<Half>(w, row, group, count, offset);
  return load_groups_as<BFloat>(w, row, group, count, offset);
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
