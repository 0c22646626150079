// The checks every launch passes on every device, driven by what the front end knows of the kernel.
#pragma once

#include "pyturbo/kernel.h"

namespace pyturbo {

// Completes a launch: sizes [[threadgroup(n)]] arguments from their shapes and takes the geometry from the
// kernel's contract when `given` is null. Throws Error{argument} that names the kernel, the argument, what
// was expected and what was found.
Dispatch check_launch(const KernelInfo& kernel, Arguments& arguments, const Dispatch* given);

}  // namespace pyturbo
