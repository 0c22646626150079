// Copies of host memory to the GPU that are long enough to be worth several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "cuda/stream.h"

namespace pyturbo::cuda {

struct Upload {
  Address to;
  const uint8_t* from;
  uint64_t bytes;
};

// Copies all of them, on streams of their own, and waits. Several pieces are under way at once; long ones are
// registered read-only meanwhile, so that the GPU reads their pages by itself. `progress` is called with the
// bytes copied so far, one thread at a time. The context must be current. Throws Error{device}.
void upload(Stream& stream, std::span<const Upload> uploads,
            const std::function<void(uint64_t done)>& progress);

}  // namespace pyturbo::cuda
