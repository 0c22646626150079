// Copies of memory that the GPU cannot use in place, such as a small NumPy array: copied in before launches
// and out afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "metal/memory.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// The copies of one run. Arguments that overlap share one copy. Owner: one run of the device, on its thread.
class Staging {
 public:
  // Copies in the arguments of all launches that Memory does not know. Throws as Memory::find does.
  Staging(const ReadyLaunch* launches, size_t count, Memory& memory);

  bool empty() const { return copies_.empty(); }

  // Returns the copy of the memory at this address.
  const uint8_t* copy_of(const void* address) const;

  // Copies the memory that launches have written back.
  void copy_out() const;

 private:
  struct Copy {
    uint8_t* begin;
    uint8_t* end;
    bool written;
    std::shared_ptr<Storage> storage;
  };
  std::vector<Copy> copies_;  // by address, without overlaps
};

}  // namespace pyturbo::metal
