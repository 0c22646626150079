#include "launch.h"

#include <algorithm>
#include <cstring>

#include "checker/checker.h"
#include "control.h"
#include "core/kernels.h"
#include "cpu/pool.h"
#include "native/soft_gpu_threads.h"
#include "pyturbo/error.h"
#include "simt/executor.h"

namespace soft_metal {
namespace {

using pyturbo::ArgumentInfo;
using pyturbo::ArgumentKind;
using pyturbo::Arguments;
using pyturbo::Extent;
using pyturbo::KernelInfo;

std::string text(const Extent& extent) {
  return std::string("(") + std::to_string(extent.x) + ", " + std::to_string(extent.y) + ", " +
         std::to_string(extent.z) + ")";
}

bool countable(const pyturbo::Dispatch& geometry) {
  const Extent &groups = geometry.groups, &threads = geometry.threads;
  return uint64_t(groups.x) * threads.x <= UINT32_MAX && uint64_t(groups.y) * threads.y <= UINT32_MAX &&
         uint64_t(groups.z) * threads.z <= UINT32_MAX;
}

// Violations of one dispatch while it is encoded.
class Findings {
 public:
  explicit Findings(const std::function<std::string()>& object) : object_(object) {}
  void add(Rule rule, const std::string& what) {
    const std::string text = violate(rule, object_(), what);
    if (first_.empty()) first_ = text;
  }
  const std::string& first() const { return first_; }

 private:
  const std::function<std::string()>& object_;
  std::string first_;
};

void check_geometry(const Launch& launch, const Options& options, Findings& findings) {
  const Extent& groups = launch.geometry.groups;
  const Extent& threads = launch.geometry.threads;
  const uint32_t limit = launch.pipeline->max_threads;
  const uint32_t widest = std::max({threads.x, threads.y, threads.z});
  if (threads.count() == 0 || threads.count() > limit || widest > options.max_threads)
    findings.add(Rule::threadgroup_size, "expected 1 to " + std::to_string(limit) +
                                             " threads in a threadgroup, got " + text(threads));
  else if (launch.pipeline->multiple_of_simd_width && threads.count() % pyturbo::kSimdWidth)
    findings.add(Rule::threadgroup_size, "expected a multiple of threadExecutionWidth, got " + text(threads));
  if (groups.x == 0 || groups.y == 0 || groups.z == 0)
    findings.add(Rule::threadgroup_size, "expected at least one threadgroup, got " + text(groups));
  else if (!countable(launch.geometry))
    findings.add(Rule::threadgroup_size,
                 "expected fewer than 2^32 threads along each axis, got " + text(groups) + " threadgroups");
}

void check_argument(const ArgumentInfo& argument, const Binding& binding, Findings& findings) {
  if (binding.empty()) {
    findings.add(Rule::unbound_argument, std::string("expected ") + argument.name + " at index " +
                                             std::to_string(argument.index) + ", got nothing");
  } else if (binding.memory && binding.offset % argument.alignment) {
    findings.add(Rule::offset, std::string(argument.name) + ": expected an offset that is a multiple of " +
                                   std::to_string(argument.alignment) + ", got " +
                                   std::to_string(binding.offset));
  } else if (binding.memory && binding.memory->untracked && argument.writable) {
    findings.add(Rule::untracked_write,
                 std::string(argument.name) + ": expected a tracked buffer, got one with untracked hazards");
  }
}

// [begin, begin + bytes) of a binding.
struct Reach {
  uint8_t* begin;
  uint64_t bytes;
};

Reach reach(const Binding& binding) {
  if (binding.bytes) return {const_cast<uint8_t*>(binding.bytes->data()), binding.bytes->size()};
  return {binding.memory->data + binding.offset, binding.memory->length - binding.offset};
}

// The checks of one dispatch while it is executed.
class Check {
 public:
  Check(const Launch& launch, const std::string& command_buffer)
      : launch_(launch), kernel_(*launch.pipeline->kernel), command_buffer_(command_buffer) {}

  pyturbo::Dispatch geometry(std::vector<Access>& accesses) const;
  Arguments bind() const;
  std::vector<Access> narrow(Arguments& arguments) const;

  [[noreturn]] void fail(Rule rule, const std::string& what) const {
    const std::string object =
        "MTLCommandBuffer '" + command_buffer_ + "', MTLComputeCommandEncoder '" + *launch_.encoder + "', ";
    throw Failure{kInvalidResource, violate(rule, object + kernel_.name, what)};
  }

 private:
  const Launch& launch_;
  const KernelInfo& kernel_;
  const std::string& command_buffer_;
};

// The number of threadgroups is read from memory when the dispatch is indirect.
pyturbo::Dispatch Check::geometry(std::vector<Access>& accesses) const {
  if (launch_.indirect.empty()) return launch_.geometry;
  const Memory& memory = *launch_.indirect.memory;
  if (memory.released) fail(Rule::released_in_use, "the indirect buffer was released before it was used");
  const uint8_t* words = memory.data + launch_.indirect.offset;
  pyturbo::Dispatch geometry = launch_.geometry;
  uint32_t groups[3];
  std::memcpy(groups, words, sizeof groups);
  geometry.groups = {groups[0], groups[1], groups[2]};
  if (!countable(geometry))
    fail(Rule::threadgroup_size,
         "expected fewer than 2^32 threads along each axis, got " + text(geometry.groups) + " threadgroups");
  accesses.push_back(
      {words, words + sizeof groups, /*writes=*/false, &memory, kernel_.name, "its number of threadgroups"});
  return geometry;
}

// Everything as bound: a buffer reaches to its end.
Arguments Check::bind() const {
  Arguments arguments;
  std::copy(std::begin(launch_.pipeline->constants), std::end(launch_.pipeline->constants),
            arguments.constants);
  if (launch_.pipeline->released) fail(Rule::released_in_use, "the pipeline was released before it ran");
  for (uint32_t i = 0; i < kernel_.argument_count; ++i) {
    const ArgumentInfo& argument = kernel_.arguments[i];
    if (!launch_.pipeline->takes(argument)) continue;
    if (argument.kind == ArgumentKind::threadgroup) {
      arguments.threadgroup_bytes[argument.index] = launch_.threadgroup_bytes[i];
      continue;
    }
    const Binding& binding = launch_.bindings[i];
    if (binding.memory && binding.memory->released)
      fail(Rule::released_in_use,
           std::string(argument.name) + ": the buffer was released before it was used");
    const Reach place = reach(binding);
    if (argument.kind == ArgumentKind::value && place.bytes < argument.size)
      fail(Rule::argument_size, std::string(argument.name) + ": expected " + std::to_string(argument.size) +
                                    " bytes, got " + std::to_string(place.bytes));
    arguments.buffers[argument.index] = place.begin;
    arguments.bytes[argument.index] = argument.kind == ArgumentKind::value ? argument.size : place.bytes;
  }
  return arguments;
}

// Reduces each argument to what the contract says the kernel touches.
std::vector<Access> Check::narrow(Arguments& arguments) const {
  std::vector<Access> accesses;
  for (uint32_t i = 0; i < kernel_.argument_count; ++i) {
    const ArgumentInfo& argument = kernel_.arguments[i];
    if (!launch_.pipeline->takes(argument)) continue;
    const bool threadgroup = argument.kind == ArgumentKind::threadgroup;
    const int64_t elements = argument.kind == ArgumentKind::value ? 1 : kernel_.elements(arguments, i);
    const uint64_t available =
        threadgroup ? arguments.threadgroup_bytes[argument.index] : arguments.bytes[argument.index];
    if (elements >= 0 && uint64_t(elements) > available / argument.size)
      fail(threadgroup ? Rule::threadgroup_memory : Rule::argument_size,
           std::string(argument.name) + ": expected at least " + std::to_string(elements) + " elements of " +
               std::to_string(argument.size) + " bytes, got " + std::to_string(available) + " bytes");
    if (threadgroup) continue;
    uint64_t& bytes = arguments.bytes[argument.index];
    if (elements >= 0) bytes = uint64_t(elements) * argument.size;
    const Binding& binding = launch_.bindings[i];
    if (!binding.memory) continue;
    const uint8_t* begin = static_cast<uint8_t*>(arguments.buffers[argument.index]);
    accesses.push_back(
        {begin, begin + bytes, argument.writable, binding.memory.get(), kernel_.name, argument.name});
  }
  return accesses;
}

// One for all devices, as there is one machine. Never destroyed: queues may run until the process ends.
pyturbo::cpu::ThreadPool& pool() {
  static auto& instance = *new pyturbo::cpu::ThreadPool(soft_gpu_threads());
  return instance;
}

// Its workers end with the process, when the devices are closed.
const struct StopAtExit {
  ~StopAtExit() { pool().stop(); }
} stop_at_exit;

void run(const KernelInfo& kernel, const Arguments& arguments, const pyturbo::Dispatch& geometry,
         bool checked) {
  const KernelInfo* instrumented =
      checked ? pyturbo::kernel_registry().find(kernel.name, pyturbo::Variant::checked) : nullptr;
  if (instrumented)
    pyturbo::checker::run_checked(*instrumented, arguments, geometry);
  else
    pyturbo::simt::run_reference(kernel, arguments, geometry, pool());
}

}  // namespace

std::string check_encoded(const Launch& launch, const std::function<std::string()>& object,
                          const Options& options) {
  const KernelInfo& kernel = *launch.pipeline->kernel;
  Findings findings(object);
  check_geometry(launch, options, findings);
  uint64_t threadgroup = kernel.threadgroup_bytes;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    if (!launch.pipeline->takes(argument)) continue;
    if (argument.kind != ArgumentKind::threadgroup) {
      check_argument(argument, launch.bindings[i], findings);
      continue;
    }
    threadgroup += launch.threadgroup_bytes[i];
    if (launch.threadgroup_bytes[i] == 0)
      findings.add(Rule::threadgroup_memory, std::string("expected the length of ") + argument.name +
                                                 " at index " + std::to_string(argument.index) +
                                                 ", got none");
  }
  if (threadgroup > options.max_threadgroup_bytes)
    findings.add(Rule::threadgroup_memory,
                 "expected at most " + std::to_string(options.max_threadgroup_bytes) +
                     " bytes of threadgroup memory, got " + std::to_string(threadgroup));
  return findings.first();
}

void execute_launch(const Launch& launch, const std::string& command_buffer, const Options& options,
                    Hazards& hazards) {
  const KernelInfo& kernel = *launch.pipeline->kernel;
  const Check check(launch, command_buffer);
  Arguments arguments = check.bind();
  if (const char* requirement = kernel.violated(arguments))
    check.fail(Rule::argument_requirement, std::string("requires ") + requirement);
  std::vector<Access> accesses = check.narrow(arguments), of_geometry;
  const pyturbo::Dispatch geometry = check.geometry(of_geometry);
  if (geometry.groups.count() == 0) accesses.clear();
  accesses.insert(accesses.end(), of_geometry.begin(), of_geometry.end());
  const std::string hazard = hazards.add(accesses);
  if (!hazard.empty()) check.fail(Rule::missing_barrier, hazard);
  count([&](Counters& counters) {
    ++(geometry.groups.count() ? counters.dispatches : counters.empty_dispatches);
  });
  if (geometry.groups.count() == 0) return;
  try {
    run(kernel, arguments, geometry, options.checked);
  } catch (const pyturbo::Error& error) {
    if (options.checked) check.fail(Rule::kernel, error.what());
    throw Failure{kInternal, error.what()};
  }
}

}  // namespace soft_metal
