// The state behind soft_metal.h, as the objects of soft Metal use it. Owner: the process; one lock.
#pragma once

#include <functional>
#include <optional>

#include "soft_metal.h"

namespace soft_metal {

inline constexpr uint64_t kRegistryID = 0x50f7;  // of the GPU

// Records a violation whose text is "<rule>: <object>: <what>" and returns that text.
std::string violate(Rule rule, const std::string& object, const std::string& what, bool warning = false);

// Counts a call that `fault` could make fail; the injection when this one must.
std::optional<Injection> take_fault(Fault fault);

void count(const std::function<void(Counters&)>& change);

void object_created(const std::string& name);
void object_gone(const std::string& name);

}  // namespace soft_metal
