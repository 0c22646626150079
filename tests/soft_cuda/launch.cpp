#include "launch.h"

#include <algorithm>
#include <cstring>

#include "control.h"
#include "cpu/pool.h"
#include "native/soft_gpu_threads.h"
#include "pyturbo/error.h"
#include "simt/executor.h"

namespace soft_cuda {
namespace {

using pyturbo::ArgumentInfo;
using pyturbo::ArgumentKind;
using pyturbo::Arguments;
using pyturbo::Extent;
using pyturbo::KernelInfo;

constexpr uint32_t kMostGroups = 65535;  // along y and z
constexpr uint32_t kMostThreadsZ = 64;

std::string text(const Extent& extent) {
  return "(" + std::to_string(extent.x) + ", " + std::to_string(extent.y) + ", " + std::to_string(extent.z) +
         ")";
}

template <typename T>
T read(const std::vector<uint8_t>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool fits(const Extent& groups, const Extent& threads, const KernelInfo& kernel) {
  const uint32_t limit = std::min(kernel.max_threads, options().max_threads);
  return threads.count() > 0 && threads.count() <= limit && threads.z <= kMostThreadsZ &&
         groups.count() > 0 && groups.x <= INT32_MAX && groups.y <= kMostGroups && groups.z <= kMostGroups;
}

// One for all streams, as there is one machine. Never destroyed: streams may run until the process ends.
pyturbo::cpu::ThreadPool& pool() {
  static auto& instance = *new pyturbo::cpu::ThreadPool(soft_gpu_threads());
  return instance;
}

// Its workers end with the process, when the devices are closed.
const struct StopAtExit {
  ~StopAtExit() { pool().stop(); }
} stop_at_exit;

}  // namespace

bool Kernel::takes(const ArgumentInfo& argument) const {
  if (argument.condition < 0) return true;
  const void* value = constants[argument.condition];
  return value && *static_cast<const uint8_t*>(value) != 0;
}

bool depend(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.begin < b.end && b.begin < a.end;
}

Result Launch::take(std::shared_ptr<const Kernel> given, const pyturbo::cuda::KernelNode& node) {
  kernel = std::move(given);
  const KernelInfo& info = *kernel->info;
  geometry = {{node.groups_x / options().form_parts * options().form_span, node.groups_y, node.groups_z},
              {node.threads_x, node.threads_y, node.threads_z}};
  shared_bytes = node.shared_bytes;
  if (!fits(geometry.groups, geometry.threads, info)) {
    violate(Rule::geometry, std::string(name()) + ": expected a geometry that the GPU can run, got " +
                                text(geometry.groups) + " threadgroups of " + text(geometry.threads));
    return Result::invalid_value;
  }
  const uint32_t most = std::max(options().max_shared_bytes, info.threadgroup_bytes + kernel->allowed_bytes);
  if (info.threadgroup_bytes + shared_bytes > most) {
    violate(Rule::shared_memory, std::string(name()) + ": expected at most " + std::to_string(most) +
                                     " bytes, got " + std::to_string(info.threadgroup_bytes + shared_bytes));
    return Result::invalid_value;
  }
  if (shared_bytes < options().form_bytes) {
    violate(Rule::shared_memory, std::string(name()) + ": expected " + std::to_string(options().form_bytes) +
                                     " bytes for its form, got " + std::to_string(shared_bytes));
    return Result::invalid_value;
  }
  if (!node.parameters || node.extra) {
    violate(Rule::parameter, std::string(name()) + ": expected an array of parameters, got none");
    return Result::invalid_value;
  }
  parameters.clear();
  const auto add = [&](uint32_t bytes) {
    const auto* data = static_cast<const uint8_t*>(node.parameters[parameters.size()]);
    parameters.emplace_back(data, data + bytes);
  };
  for (uint32_t i = 0; i < info.argument_count; ++i)
    if (info.arguments[i].kind != ArgumentKind::threadgroup)
      add(info.arguments[i].kind == ArgumentKind::value ? info.arguments[i].size : sizeof(uint64_t));
  for (uint32_t i = 0; i < info.argument_count; ++i)
    if (info.arguments[i].kind == ArgumentKind::threadgroup) add(sizeof(uint32_t));
  return Result::success;
}

// Parameters of threadgroup arguments come after all others.
const std::vector<uint8_t>& Launch::parameter(uint32_t argument) const {
  const KernelInfo& info = *kernel->info;
  const bool last = info.arguments[argument].kind == ArgumentKind::threadgroup;
  size_t place = 0;
  for (uint32_t i = 0; i < info.argument_count; ++i) {
    const bool threadgroup = info.arguments[i].kind == ArgumentKind::threadgroup;
    if (last ? !threadgroup || i < argument : !threadgroup && i < argument) ++place;
  }
  return parameters[place];
}

// A threadgroup argument reaches to the next one, or to the end of the shared memory of the launch.
bool Launch::take_threadgroup(Arguments& arguments) const {
  const KernelInfo& info = *kernel->info;
  for (uint32_t i = 0; i < info.argument_count; ++i) {
    const ArgumentInfo& argument = info.arguments[i];
    if (argument.kind != ArgumentKind::threadgroup || !kernel->takes(argument)) continue;
    const uint32_t begin = read<uint32_t>(parameter(i));
    uint32_t end = shared_bytes;
    for (uint32_t j = i + 1; j < info.argument_count; ++j)
      if (info.arguments[j].kind == ArgumentKind::threadgroup)
        end = std::min(end, std::max(begin, read<uint32_t>(parameter(j))));
    const int64_t elements = info.elements(arguments, i);
    const uint64_t wanted = elements >= 0 ? uint64_t(elements) * argument.size : 1;
    if (begin > end || end - begin < wanted || begin % 16) {
      violate(Rule::shared_memory, std::string(name()) + ": " + argument.name + ": expected " +
                                       std::to_string(wanted) + " aligned bytes of shared memory, got " +
                                       std::to_string(begin) + " to " + std::to_string(end));
      return false;
    }
    arguments.threadgroup_bytes[argument.index] = elements >= 0 ? uint32_t(wanted) : end - begin;
  }
  return true;
}

bool Launch::resolve(Arguments& arguments, std::vector<Access>& accesses,
                     std::vector<std::shared_ptr<Block>>& blocks) const {
  const KernelInfo& info = *kernel->info;
  std::copy(std::begin(kernel->constants), std::end(kernel->constants), arguments.constants);
  const auto wrong = [&](Rule rule, const ArgumentInfo& argument, const std::string& what) {
    violate(rule, std::string(name()) + ": " + argument.name + ": " + what);
    return false;
  };
  for (uint32_t i = 0; i < info.argument_count; ++i) {
    const ArgumentInfo& argument = info.arguments[i];
    if (argument.kind == ArgumentKind::threadgroup || !kernel->takes(argument)) continue;
    const std::vector<uint8_t>& given = parameter(i);
    if (argument.kind == ArgumentKind::value) {
      arguments.buffers[argument.index] = const_cast<uint8_t*>(given.data());
      arguments.bytes[argument.index] = argument.size;
      continue;
    }
    const uint64_t address = read<uint64_t>(given);
    if (address == 0) continue;  // an empty buffer
    const auto block = heap().find(address);
    if (!block || block->kind == Block::registered)
      return wrong(Rule::memory_range, argument, "expected memory that kernels can touch, got other memory");
    if (address % argument.alignment)
      return wrong(Rule::alignment, argument, "expected a multiple of " + std::to_string(argument.alignment));
    arguments.buffers[argument.index] = block->data + (address - block->begin);
    arguments.bytes[argument.index] = block->begin + block->bytes - address;
    blocks.push_back(block);
  }
  if (const char* requirement = info.violated(arguments)) {
    violate(Rule::parameter, std::string(name()) + ": requires " + requirement);
    return false;
  }
  for (uint32_t i = 0; i < info.argument_count; ++i) {
    const ArgumentInfo& argument = info.arguments[i];
    if (argument.kind != ArgumentKind::buffer || !kernel->takes(argument)) continue;
    const int64_t elements = info.elements(arguments, i);
    uint64_t& bytes = arguments.bytes[argument.index];
    if (elements >= 0 && uint64_t(elements) > bytes / argument.size)
      return wrong(Rule::memory_range, argument,
                   "expected " + std::to_string(elements) + " elements of " + std::to_string(argument.size) +
                       " bytes, got " + std::to_string(bytes) + " bytes");
    if (elements >= 0) bytes = uint64_t(elements) * argument.size;
    const auto* begin = static_cast<const uint8_t*>(arguments.buffers[argument.index]);
    accesses.push_back({begin, begin + bytes, argument.writable, argument.name});
  }
  return take_threadgroup(arguments);
}

bool Launch::execute(const Arguments& arguments) const {
  try {
    pyturbo::simt::run_reference(*kernel->info, arguments, geometry, pool());
    return true;
  } catch (const pyturbo::Error& error) {
    violate(Rule::kernel, error.what());
    return false;
  }
}

}  // namespace soft_cuda
