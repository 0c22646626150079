#include "control.h"

namespace soft_metal {
namespace {

SoftState<Rule, Fault, Options, Counters>& state() {
  static auto& instance = *new SoftState<Rule, Fault, Options, Counters>;
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
    case Rule::queue_full:
      return "queue full";
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

void set_options(const Options& options) { state().set_options(options); }
Options options() { return state().options(); }
void inject(const Injection& injection) { state().inject(injection); }
std::vector<Violation> violations() { return state().violations(); }
Counters counters() { return state().counters(); }
std::map<std::string, int> live_objects() { return state().live_objects(); }
void reset() { state().reset(); }

std::string violate(Rule rule, const std::string& object, const std::string& what, bool warning) {
  const std::string text = std::string(rule_name(rule)) + ": " + object + ": " + what;
  state().violate({rule, warning, text});
  return text;
}

void count(const std::function<void(Counters&)>& change) { state().count(change); }
std::optional<Injection> take_fault(Fault fault) { return state().take_fault(fault); }
void object_created(const std::string& name) { state().object_created(name); }
void object_gone(const std::string& name) { state().object_gone(name); }

}  // namespace soft_metal
