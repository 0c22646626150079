// Instructions of this machine beyond those that kernels use.
#pragma once

#include <string>

namespace pyturbo::cpu {

// Those for products and small numbers that the bodies of a level (kernels/levels.h) could gain from but do
// not use, by the names of /proc/cpuinfo or, on macOS, of hw.optional.arm, separated by spaces.
std::string unused_features(const char* level);

}  // namespace pyturbo::cpu
