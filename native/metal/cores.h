// How large a GPU is.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>

namespace pyturbo::metal {

// Returns the cores of a GPU, which Metal does not tell, from the registry of the system; 0 where it does not
// say.
uint32_t core_count(id<MTLDevice> device);

}  // namespace pyturbo::metal
