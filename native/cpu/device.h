// The CPU device: for each kernel the best implementation this machine has, else the shader itself.
#pragma once

#include <memory>
#include <string>

#include "pyturbo/device.h"

namespace pyturbo::cpu {

std::unique_ptr<Device> make_device(const std::string& name, const DeviceOptions& options);

}  // namespace pyturbo::cpu
