#include "control.h"

#include <mutex>

namespace soft_metal {
namespace {

struct State {
  std::mutex mutex;
  Options options;
  std::vector<Violation> violations;
  std::vector<Injection> injections;
  Counters counters;
  std::map<std::string, int> live;
};

// Never destroyed: objects may outlive the library's destructors.
State& state() {
  static State& instance = *new State;
  return instance;
}

}  // namespace

const char* rule_name(Rule rule) {
  switch (rule) {
    case Rule::autorelease_pool:
      return "autorelease pool";
    case Rule::unknown_function:
      return "unknown function";
    case Rule::function_constant:
      return "function constant";
    case Rule::pipeline_missing:
      return "pipeline missing";
    case Rule::unbound_argument:
      return "unbound argument";
    case Rule::argument_size:
      return "argument size";
    case Rule::argument_requirement:
      return "argument requirement";
    case Rule::offset:
      return "offset";
    case Rule::set_bytes_length:
      return "setBytes length";
    case Rule::binding_index:
      return "binding index";
    case Rule::threadgroup_size:
      return "threadgroup size";
    case Rule::threadgroup_memory:
      return "threadgroup memory";
    case Rule::missing_barrier:
      return "missing barrier";
    case Rule::untracked_write:
      return "untracked write";
    case Rule::encoder_ended:
      return "encoder ended";
    case Rule::encoder_open:
      return "encoder open";
    case Rule::debug_groups:
      return "debug groups";
    case Rule::committed:
      return "committed";
    case Rule::never_committed:
      return "never committed";
    case Rule::wait_before_commit:
      return "wait before commit";
    case Rule::released_in_use:
      return "released in use";
    case Rule::buffer_length:
      return "buffer length";
    case Rule::buffer_options:
      return "buffer options";
    case Rule::no_copy_alignment:
      return "no-copy alignment";
    case Rule::sample_buffer:
      return "sample buffer";
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

std::string violate(Rule rule, const std::string& object, const std::string& what, bool warning) {
  const std::string text = std::string(rule_name(rule)) + ": " + object + ": " + what;
  const std::lock_guard lock(state().mutex);
  state().violations.push_back({rule, warning, text});
  return text;
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

void count(const std::function<void(Counters&)>& change) {
  const std::lock_guard lock(state().mutex);
  change(state().counters);
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

}  // namespace soft_metal
