// One matrix of a stack of experts.
#pragma once

#include "affine.h"

constant bool by_offset [[function_constant(0)]];

// Elements from one expert to the next, in each tensor of a stack.
struct ExpertStrides {
  ulong packed;
  ulong scales;
  ulong biases;
};

// The matrix of expert `id`, moved on by `offset` bytes.
template <uint bits, typename S>
inline Affine<bits, S> expert_matrix(
    device const uint* packed,
    device const S* scales,
    device const S* biases,
    uint id,
    ExpertStrides strides,
    ulong offset,
    uint in,
    uint group_size) {
  return affine_matrix<bits, S>(
      advance_bytes(packed + id * strides.packed, offset),
      advance_bytes(scales + id * strides.scales, offset),
      advance_bytes(biases + id * strides.biases, offset), in, group_size);
}
