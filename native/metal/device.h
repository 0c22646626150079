// The Metal device.
#pragma once

#include "pyturbo/device.h"

namespace pyturbo::metal {

// GPUs of the family Apple7 (M1) or newer. Opening one throws Error{device} where there is none, or no
// kernels for it, and Error{state} in a child of fork().
DeviceKind kind();

}  // namespace pyturbo::metal
