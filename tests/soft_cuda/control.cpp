#include "control.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "objects.h"

namespace soft_cuda {
namespace {

struct State {
  std::mutex mutex;
  Options options;
  std::vector<Violation> violations;
  std::vector<Injection> injections;
  Counters counters;
  std::map<std::string, int> live;
};

// Never destroyed: streams may run until the process ends.
State& state() {
  static State& instance = *new State;
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

void set_options(const Options& options) {
  const std::lock_guard lock(state().mutex);
  state().options = options;
}

Options options() {
  const std::lock_guard lock(state().mutex);
  return state().options;
}

void inject(const Injection& injection) {
  const std::lock_guard lock(state().mutex);
  state().injections.push_back(injection);
}

std::vector<Violation> violations() {
  const std::lock_guard lock(state().mutex);
  return state().violations;
}

Counters counters() {
  const std::lock_guard lock(state().mutex);
  return state().counters;
}

void reset() {
  failure().clear();
  const std::lock_guard lock(state().mutex);
  state().options = {};
  state().violations.clear();
  state().injections.clear();
  state().counters = {};
}

std::map<std::string, int> live_objects() {
  const std::lock_guard lock(state().mutex);
  return state().live;
}

void violate(Rule rule, const std::string& what) {
  const std::lock_guard lock(state().mutex);
  state().violations.push_back({rule, std::string(rule_name(rule)) + ": " + what});
}

std::optional<Injection> take_fault(Fault fault) {
  const std::lock_guard lock(state().mutex);
  for (Injection& injection : state().injections) {
    if (injection.fault != fault || injection.times == 0) continue;
    if (injection.after > 0) {
      --injection.after;
      continue;
    }
    if (fault != Fault::device_lost) --injection.times;
    return injection;
  }
  return std::nullopt;
}

void slow_down(Fault fault) {
  if (const auto slow = take_fault(fault))
    std::this_thread::sleep_for(std::chrono::milliseconds(slow->milliseconds));
}

void count(uint64_t Counters::* counter, uint64_t by) {
  const std::lock_guard lock(state().mutex);
  state().counters.*counter += by;
}

void object_created(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  ++state().live[name];
}

void object_gone(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  auto& live = state().live;
  if (const auto found = live.find(name); found != live.end() && --found->second == 0) live.erase(found);
}

}  // namespace soft_cuda
