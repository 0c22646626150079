// The parameters of a launch as its kernel takes them: in the order of declaration, a buffer as an address, a
// value by value, then for each threadgroup argument the place of its bytes in dynamic shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/driver.h"
#include "cuda/memory.h"
#include "cuda/staging.h"
#include "pyturbo/device.h"

namespace pyturbo::cuda {

// Owner: one thread at a time.
class Parameters {
 public:
  // Takes the parameters of a launch. Returns false where Memory does not know the memory of an argument and
  // `staging` is null.
  bool take(const ReadyLaunch& launch, Memory::Lookup& memory, const Staging* staging);

  // Returns them as the driver takes them, valid until the next call of take().
  void** pointers();
  unsigned shared_bytes() const { return shared_bytes_; }

  bool operator==(const Parameters& other) const {
    return bytes_ == other.bytes_ && shared_bytes_ == other.shared_bytes_;
  }

 private:
  uint8_t* add(uint32_t bytes);

  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> places_;  // in bytes_
  std::vector<void*> pointers_;
  unsigned shared_bytes_ = 0;
};

// Throws Error{device} for a geometry of a launch that the GPU cannot run. `max_threads` is that of the
// loaded kernel.
void require_geometry(const ReadyLaunch& launch, const Dispatch& geometry, uint32_t max_threads);

}  // namespace pyturbo::cuda
