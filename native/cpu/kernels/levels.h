// Levels: the instruction sets that bodies (bodies.h) are compiled for. A build has several, and a device
// uses the best one that the machine has.
#pragma once

#include <unordered_map>
#include <vector>

#include "cpu/kernels/bodies.h"

namespace pyturbo::cpu {

struct Level {
  const char* name;
  bool (*available)();           // on this machine
  const BodyList* const* lists;  // of its bodies, up to null

  // The body of a kernel instance, or null. Kernels without a Dispatch line have none, since a body computes
  // the geometry of the contract and no other.
  RunBody find(const KernelInfo& kernel) const;
};

// The levels of this build that this machine has, best first; may be empty.
std::vector<const Level*> levels();

// The best level, or the one that the environment variable PYTURBO_ISA names; null for "none" and on machines
// without a level. Throws Error{argument} where the variable names a level that this machine does not have.
const Level* choose_level();

// The bodies of a level for the kernels of this package. Owner: a device. Immutable, so any thread may use
// it.
class Bodies {
 public:
  explicit Bodies(const Level* level);  // null: no kernel has a body

  // Adds a complete launch to a batch by its body. False: there is none, or the geometry is not the one that
  // the kernel's contract states, which is the only one that bodies compute. Bodies do not read function
  // constants that may be undefined: these say how a GPU computes.
  bool add(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch,
           Batch& batch) const;

 private:
  std::unordered_map<const KernelInfo*, RunBody> bodies_;
};

}  // namespace pyturbo::cpu
