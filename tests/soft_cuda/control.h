// The state behind soft_cuda.h, as the functions of soft CUDA use it. Owner: the process; one lock.
#pragma once

#include <functional>
#include <optional>

#include "soft_cuda.h"

namespace soft_cuda {

// Records a violation whose text is "<rule>: <what>".
void violate(Rule rule, const std::string& what);

// Counts a call that `fault` could make fail; the injection when this one must.
std::optional<Injection> take_fault(Fault fault);

// Waits where a slow call of this kind was injected.
void slow_down(Fault fault);

void count(uint64_t Counters::* counter, uint64_t by = 1);

void object_created(const std::string& name);
void object_gone(const std::string& name);

}  // namespace soft_cuda
