// Runs launches of reference kernels over a thread pool.
#pragma once

#include <cstdint>

#include "cpu/pool.h"
#include "pyturbo/kernel.h"

namespace pyturbo::cpu {

// Runs all threadgroups of a checked launch (core/launch.h), in any order; returns when they have finished.
// Throws Error{device} when a group fails; other groups may then have run or not.
void run_reference(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch,
                   ThreadPool& pool);

// Position of the `index`-th threadgroup, x fastest.
inline Extent group_at(const Extent& groups, uint64_t index) {
  if (groups.y == 1 && groups.z == 1) return {uint32_t(index), 0, 0};
  const uint64_t row = index / groups.x;
  return {uint32_t(index % groups.x), uint32_t(row % groups.y), uint32_t(row / groups.y)};
}

}  // namespace pyturbo::cpu
