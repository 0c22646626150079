// Memory that the GPU cannot use where it lies, such as a small NumPy array: copied in before launches, and
// out after.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "metal/memory.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// The copies of one run. Arguments that overlap share one copy, as they share the memory.
class Staging {
 public:
  // Looks at all launches and copies in. Throws as Memory::find does.
  Staging(const ReadyLaunch* launches, size_t count, Memory& memory);

  bool empty() const { return copies_.empty(); }

  // The copy that holds these bytes.
  const uint8_t* copy_of(const void* address) const;

  // What launches have written goes back.
  void copy_out() const;

 private:
  struct Copy {
    uint8_t* begin;
    uint8_t* end;
    bool written;
    std::shared_ptr<Storage> storage;
  };
  std::vector<Copy> copies_;  // by address, apart from each other
};

}  // namespace pyturbo::metal
