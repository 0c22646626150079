// The Metal device.
#pragma once

#include "pyturbo/device.h"

namespace pyturbo::metal {

// Makes the device "metal" known if this machine has one; `best`: in front of the others.
bool add_metal_device(bool best);

}  // namespace pyturbo::metal
