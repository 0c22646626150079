#include "control.h"

#include <chrono>
#include <thread>

#include "objects.h"

namespace soft_cuda {
namespace {

SoftState<Rule, Fault, Options, Counters>& state() {
  static auto& instance = *new SoftState<Rule, Fault, Options, Counters>;
  return instance;
}

}  // namespace

const char* rule_name(Rule rule) {
  switch (rule) {
    case Rule::no_context:
      return "no context";
    case Rule::forked:
      return "forked";
    case Rule::handle:
      return "handle";
    case Rule::geometry:
      return "geometry";
    case Rule::parameter:
      return "parameter";
    case Rule::overlap:
      return "overlap";
    case Rule::memory_range:
      return "memory range";
    case Rule::alignment:
      return "alignment";
    case Rule::shared_memory:
      return "shared memory";
    case Rule::missing_edge:
      return "missing edge";
    case Rule::host_memory:
      return "host memory";
    case Rule::freed_in_use:
      return "freed in use";
    case Rule::compile_options:
      return "compile options";
    case Rule::kernel:
      return "kernel";
  }
  return "";
}

void set_options(const Options& options) { state().set_options(options); }
Options options() { return state().options(); }
void inject(const Injection& injection) { state().inject(injection); }
std::vector<Violation> violations() { return state().violations(); }
Counters counters() { return state().counters(); }
std::map<std::string, int> live_objects() { return state().live_objects(); }

void reset() {
  failure().clear();
  state().reset();
}

void violate(Rule rule, const std::string& what) {
  state().violate({rule, /*warning=*/false, std::string(rule_name(rule)) + ": " + what});
}

void slow_down(Fault fault) {
  if (const auto slow = take_fault(fault))
    std::this_thread::sleep_for(std::chrono::milliseconds(slow->milliseconds));
}

void count(uint64_t Counters::* counter, uint64_t by) {
  state().count([&](Counters& counters) { counters.*counter += by; });
}

std::optional<Injection> take_fault(Fault fault) { return state().take_fault(fault); }
void object_created(const std::string& name) { state().object_created(name); }
void object_gone(const std::string& name) { state().object_gone(name); }

}  // namespace soft_cuda
