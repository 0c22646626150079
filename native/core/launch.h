// The checks that every launch passes on every device, from the contract and arguments of its kernel.
#pragma once

#include "pyturbo/kernel.h"

namespace pyturbo {

// Completes a launch: computes the sizes of [[threadgroup(n)]] arguments from their shapes, and the geometry
// from the kernel's contract when `given` is null. Throws an Error{argument} that names the kernel and the
// argument.
Dispatch check_launch(const KernelInfo& kernel, Arguments& arguments, const Dispatch* given);

}  // namespace pyturbo
