// One matrix of a stack of experts.
#pragma once

#include "../common/slots.h"
#include "affine.h"

// Elements from one matrix to the next, in each array of a stack.
struct Strides {
  ulong packed;
  ulong scales;
  ulong biases;
};

// Matrix `number` of a stack.
template <uint bits, typename S>
inline Affine<bits, S> matrix_at(
    device const uint* packed,
    device const S* scales,
    device const S* biases,
    uint number,
    Strides strides,
    uint in,
    uint group_size) {
  return affine_matrix<bits, S>(
      packed + number * strides.packed, scales + number * strides.scales, biases + number * strides.biases,
      in, group_size);
}
