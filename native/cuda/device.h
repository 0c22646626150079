// The CUDA device.
#pragma once

#include <string>

#include "pyturbo/device.h"

namespace pyturbo::cuda {

// GPUs of compute capability 7.5 or newer. Opening one throws Error{device} where there is none, or nothing
// to compile kernels with, and Error{state} in a child of fork() of a process that has used the driver.
// `ordinal` is the driver's number of the GPU: the first is the device cuda, the others cuda:1 and so on.
DeviceKind kind(uint32_t ordinal = 0);

}  // namespace pyturbo::cuda
