// The checks of one dispatch and its execution by the reference kernel.
#pragma once

#include <functional>
#include <string>

#include "command_list.h"
#include "hazards.h"
#include "soft_metal.h"

namespace soft_metal {

// What can be told when the dispatch is encoded: geometry, bindings, alignment, threadgroup memory. Records
// violations, of what `object` names, and returns the text of the first, or an empty one.
std::string check_encoded(const Launch& launch, const std::function<std::string()>& object,
                          const Options& options);

// What depends on the values in memory (sizes, requirements, hazards), then the kernel. Throws Failure.
void execute_launch(const Launch& launch, const std::string& command_buffer, const Options& options,
                    Hazards& hazards);

}  // namespace soft_metal
