// Compiles a function, as far as soft Metal does.
#pragma once

#include <memory>
#include <string>

#include "objects.h"

// Null and the reason in `error` when the function has no kernel, a constant is missing, or the device is too
// small.
std::shared_ptr<soft_metal::Pipeline> soft_compile(SoftFunction* function, std::string& error);
