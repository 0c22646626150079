// The levels of this machine and their bodies, so that no test forgets one.
#pragma once

#include <string>
#include <vector>

// Names of the levels, best first.
std::vector<std::string> level_names();

// The shader functions that a level of this machine has a body for; none for an unknown level.
std::vector<std::string> body_names(const std::string& level);

// Host names of the kernel instances that a device at this level runs by a body.
std::vector<std::string> body_instances(const std::string& level);
