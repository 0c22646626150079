// Runs launches of reference kernels.
#pragma once

#include <cstdint>

#include "pyturbo/kernel.h"
#include "simt/threadgroup.h"

namespace pyturbo::simt {

// Returns the position of the `index`-th threadgroup, x fastest.
inline Extent group_at(const Extent& groups, uint64_t index) {
  if (groups.y == 1 && groups.z == 1) return {uint32_t(index), 0, 0};
  const uint64_t row = index / groups.x;
  return {uint32_t(index % groups.x), uint32_t(row % groups.y), uint32_t(row / groups.y)};
}

// Runs all threadgroups of a checked launch (core/launch.h), in any order, and returns when they have
// finished. The pool spreads them over threads: pool.parallel_for(count, fn) calls fn(i) once for each
// i < count and rethrows the first exception. Throws Error{device} when a group fails; other groups may then
// have run or not.
template <typename Pool>
void run_reference(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch, Pool& pool) {
  const Launch launch{info, arguments, dispatch};
  pool.parallel_for(dispatch.groups.count(), [&](uint64_t index) {
    Threadgroup::this_thread().run(launch, group_at(dispatch.groups, index));
  });
}

}  // namespace pyturbo::simt
