// The kernels that have a CPU body, so that no test forgets one.
#pragma once

#include <string>
#include <vector>

// The shader functions that a level of this machine has a body for; none for an unknown level.
std::vector<std::string> body_names(const std::string& level);
