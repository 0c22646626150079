// Finds the kernels of MSL source text.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace soft_metal {

struct SourceResult {
  std::vector<std::string> kernels;  // host names, in order
  std::string error;                 // what the compiler would say; empty when it would say nothing
};

// Runs the host's preprocessor, so that macros that instantiate kernels are seen through. Knows no header but
// Metal's own, since source compiled at run time has none beside it. Types and statements are not checked.
SourceResult read_source(const std::string& source, const std::map<std::string, std::string>& macros);

}  // namespace soft_metal
