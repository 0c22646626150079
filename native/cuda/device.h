// The CUDA device.
#pragma once

#include <string>

#include "pyturbo/device.h"

namespace pyturbo::cuda {

// GPUs of compute capability 7.5 or newer. Opening one throws Error{device} where there is none, or nothing
// to compile kernels with, and Error{state} in a child of fork() of a process that has used the driver.
DeviceKind kind();

}  // namespace pyturbo::cuda
