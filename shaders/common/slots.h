// Where the matrix of an expert is in its stack.
#pragma once

#include <metal_stdlib>
using namespace metal;

constant bool by_slot [[function_constant(0)]];

constexpr constant int kNoMatrix = 2147483647;  // a number that no stack has

// The number of the matrix of expert `id`: slots[id], or the id itself without slots. If it is negative, the
// rows of the expert stay as they are; if the stack has no such matrix, they are NaN.
inline int matrix_of(device const int* slots, uint id, uint experts) {
  if (id >= experts) return kNoMatrix;
  return by_slot ? slots[id] : int(id);
}
