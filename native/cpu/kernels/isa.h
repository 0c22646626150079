// Levels of instruction sets: a build has several, a machine runs the best it can.
#pragma once

#include <string>
#include <vector>

#include "cpu/kernels/kernel.h"

namespace pyturbo::cpu {

struct Isa {
  const char* name;
  bool (*available)();  // on this machine
  const FastKernel* kernels;
  uint32_t count;
};

// Of this build and this machine, best first; may be empty.
std::vector<const Isa*> isa_levels();

// The best level, or the one named by the environment variable PYTURBO_ISA; "none" and machines without a
// level give null. Throws Error{argument} when the variable names a level that this machine has not.
const Isa* choose_isa();

}  // namespace pyturbo::cpu
