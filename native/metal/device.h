// The Metal device.
#pragma once

#include <memory>
#include <string>

#include "pyturbo/device.h"

namespace pyturbo::metal {

// Whether this machine has a GPU with what the kernels need: the family Apple7 (M1) or newer. Not in a child
// of fork(), which Metal does not serve.
bool available();

// Throws Error{device} where there is none, or no kernels for it.
std::unique_ptr<Device> make_device(const std::string& name, const DeviceOptions& options);

}  // namespace pyturbo::metal
