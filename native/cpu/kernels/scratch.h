// Memory for one launch or one item of it, kept by each thread from one use to the next.
#pragma once

#include <cstddef>

namespace pyturbo::cpu {

// Aligned to 64 bytes, not initialised, valid until the next call of the same function on this thread.
void* launch_scratch(size_t bytes);  // for the thread that launches; its items read it
void* item_scratch(size_t bytes);    // for the thread that runs an item

}  // namespace pyturbo::cpu
