// Where the matrix of an expert is in its stack: shaders/common/slots.h.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// The matrices of the experts of a launch.
struct Slots {
  const int32_t* slots;  // [experts], or null: expert e has matrix e
  uint32_t experts, matrices;

  template <typename A>
  explicit Slots(const A& a) : slots(a.slots), experts(a.experts), matrices(a.matrices) {}

  // The number of the matrix of expert `id`. If it is negative, the rows of the expert stay as they are; if
  // the stack has no such matrix, they are NaN.
  int32_t at(uint32_t id) const {
    if (id >= experts) return INT32_MAX;
    return slots ? slots[id] : int32_t(id);
  }

  bool has(int32_t number) const { return uint32_t(number) < matrices; }
};

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
