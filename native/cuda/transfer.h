// Copies between host memory and that of the GPU, and within that. Small ones go through pinned memory, so
// that writes do not wait.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace pyturbo::cuda {

// Owner: the device. Any thread; a lock for each direction. The context must be current.
class Transfer {
 public:
  Transfer(Memory& memory, Stream& stream);

  void read(void* to, Address from, uint64_t bytes);
  void write(Address to, const void* from, uint64_t bytes);
  // Copies within the GPU. The two may overlap.
  void copy(Address to, Address from, uint64_t bytes);

 private:
  Memory& memory_;
  Stream& stream_;
  std::mutex reading_, writing_;
  const std::shared_ptr<Storage> from_gpu_, to_gpu_;
  uint64_t used_ = 0;  // bytes of to_gpu_ that copies may still read
};

}  // namespace pyturbo::cuda
