// Copies of host memory that kernels cannot touch, such as NumPy arrays: copied in before launches and out
// afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/memory.h"
#include "pyturbo/device.h"

namespace pyturbo::cuda {

// The copies of one run. Arguments that overlap share one copy. Owner: one run of the device, on its thread.
class Staging {
 public:
  // Copies in the arguments of all launches that Memory does not know.
  Staging(std::span<const ReadyLaunch> launches, Memory& memory, Stream& stream);

  // Whether there are such arguments.
  static bool needed(std::span<const ReadyLaunch> launches, const Memory& memory);

  bool empty() const { return copies_.empty(); }

  // Returns the copy of the memory at this address.
  Address copy_of(const void* address) const;

  // Copies the memory that launches have written back, and waits for that.
  void copy_out() const;

 private:
  struct Copy {
    uint8_t* begin;
    uint8_t* end;
    bool written;
    Address place;
  };

  Stream& stream_;
  std::vector<Copy> copies_;  // by address, without overlaps
  std::shared_ptr<Storage> storage_;
};

}  // namespace pyturbo::cuda
