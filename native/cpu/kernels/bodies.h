// Which kernels of this package have a body made for this processor.
#pragma once

#include <unordered_map>

#include "cpu/kernels/isa.h"

namespace pyturbo::cpu {

// Owner: a device. Immutable, so any thread may use it.
class FastBodies {
 public:
  explicit FastBodies(const Isa* isa);  // null: none has

  // Adds a complete launch to a batch by its fast body. False: there is none, or the launch is not the one
  // that the kernel's contract states, of which a fast body computes all.
  bool add(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch,
           Precision precision, Batch& batch) const;

 private:
  struct Body {
    void (*run)(const FastLaunch&);
    Format format;
  };
  std::unordered_map<const KernelInfo*, Body> bodies_;
};

}  // namespace pyturbo::cpu
