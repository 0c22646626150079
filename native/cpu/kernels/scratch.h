// Memory for one item of a launch, kept by each thread from one use to the next.
#pragma once

#include <cstddef>

namespace pyturbo::cpu {

// Aligned to 64 bytes, not initialised, valid until the next call on this thread.
void* item_scratch(size_t bytes);

}  // namespace pyturbo::cpu
