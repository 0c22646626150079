#include "core/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "pyturbo/error.h"
#include "pyturbo/storage.h"

namespace pyturbo {
namespace {

[[noreturn]] void refuse(const KernelInfo& kernel, const std::string& what) {
  throw Error(ErrorKind::argument, std::string(kernel.name) + ": " + what);
}

std::string text(const Extent& extent) {
  char text[48];
  std::snprintf(text, sizeof text, "(%u, %u, %u)", extent.x, extent.y, extent.z);
  return text;
}

template <typename T>
T read(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string value_text(const ArgumentInfo& argument, const void* data) {
  switch (argument.dtype) {
    case DType::f32:
      return number_text(read<float>(data));
    case DType::i32:
      return std::to_string(read<int32_t>(data));
    case DType::u32:
      return std::to_string(read<uint32_t>(data));
    case DType::i64:
      return std::to_string(read<int64_t>(data));
    case DType::u64:
      return std::to_string(read<uint64_t>(data));
    case DType::boolean:
      return read<bool>(data) ? "true" : "false";
    default:
      return "...";
  }
}

// Returns the values of a launch for messages, such as "in_dim = 100, group_size = 64".
std::string values_text(const KernelInfo& kernel, const Arguments& arguments) {
  std::string out;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    if (argument.kind != ArgumentKind::value || !arguments.buffers[argument.index]) continue;
    if (!out.empty()) out += ", ";
    out += std::string(argument.name) + " = " + value_text(argument, arguments.buffers[argument.index]);
  }
  return out;
}

bool present(const ArgumentInfo& argument, const Arguments& arguments) {
  if (argument.condition < 0) return true;
  const void* constant = arguments.constants[argument.condition];
  return constant && read<bool>(constant);
}

void check_constants(const KernelInfo& kernel, const Arguments& arguments) {
  for (uint32_t i = 0; i < kernel.constant_count; ++i)
    if (kernel.constants[i].required && !arguments.constants[kernel.constants[i].slot])
      refuse(kernel, std::string("expected a value for function constant ") + kernel.constants[i].name);
}

void check_bound(const KernelInfo& kernel, const Arguments& arguments) {
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    if (argument.kind == ArgumentKind::threadgroup || !present(argument, arguments)) continue;
    const void* data = arguments.buffers[argument.index];
    const uint64_t bytes = arguments.bytes[argument.index];
    if (argument.kind == ArgumentKind::value) {
      if (!data || bytes != argument.size)
        refuse(kernel, std::string(argument.name) + ": expected a value of " + std::to_string(argument.size) +
                           " bytes, got " + std::to_string(bytes));
    } else if (!data) {
      refuse(kernel, std::string(argument.name) + ": expected a buffer, got none");
    } else if (reinterpret_cast<uintptr_t>(data) % argument.alignment) {
      refuse(kernel, std::string(argument.name) + ": expected memory aligned to " +
                         std::to_string(argument.alignment) + " bytes, got an address " +
                         std::to_string(reinterpret_cast<uintptr_t>(data) % argument.alignment) +
                         " bytes past");
    }
  }
}

void check_sizes(const KernelInfo& kernel, Arguments& arguments) {
  uint64_t threadgroup = kernel.threadgroup_bytes;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    if (argument.kind == ArgumentKind::value || !present(argument, arguments)) continue;
    const int64_t elements = kernel.elements(arguments, i);
    if (argument.kind == ArgumentKind::threadgroup) {
      uint32_t& bytes = arguments.threadgroup_bytes[argument.index];
      if (elements >= 0)
        bytes = elements > kMaxThreadgroupBytes ? UINT32_MAX : uint32_t(elements) * argument.size;
      if (bytes == 0) refuse(kernel, std::string(argument.name) + ": expected its size in bytes, got none");
      threadgroup += bytes;
      continue;
    }
    const uint64_t available = arguments.bytes[argument.index] / argument.size;
    if (elements >= 0 && uint64_t(elements) > available)
      refuse(kernel, std::string(argument.name) + ": expected at least " + std::to_string(elements) +
                         " elements of " + std::to_string(argument.size) + " bytes, got " +
                         std::to_string(available) + " (" + values_text(kernel, arguments) + ")");
  }
  if (threadgroup > kMaxThreadgroupBytes)
    refuse(kernel, "expected at most " + std::to_string(kMaxThreadgroupBytes) +
                       " bytes of threadgroup memory, got " + std::to_string(threadgroup));
}

// Thread positions have 32 bits, so each axis of the grid must fit in 32 bits, and the whole grid in 64.
void check_dispatch(const KernelInfo& kernel, const Dispatch& dispatch) {
  const Extent& threads = dispatch.threads;
  const Extent& groups = dispatch.groups;
  const uint32_t limit = std::min(kernel.max_threads, kMaxThreads);
  if (threads.count() == 0 || std::max({threads.x, threads.y, threads.z}) > limit || threads.count() > limit)
    refuse(kernel,
           "expected 1 to " + std::to_string(limit) + " threads in a threadgroup, got " + text(threads));
  uint64_t all;
  const bool fits = uint64_t(groups.x) * threads.x <= UINT32_MAX &&
                    uint64_t(groups.y) * threads.y <= UINT32_MAX &&
                    uint64_t(groups.z) * threads.z <= UINT32_MAX &&
                    !__builtin_mul_overflow(uint64_t(groups.x) * groups.y, groups.z, &all);
  if (!fits)
    refuse(kernel, "expected a grid of fewer than 2^32 threads along each axis and 2^64 in all, got " +
                       text(groups) + " threadgroups of " + text(threads));
}

// A caller's own geometry may leave threadgroups out. Kernels rely on it that there are no others than the
// contract states, with as many threads each.
void check_stated(const KernelInfo& kernel, const Dispatch& given, const Dispatch& stated) {
  const Extent &groups = given.groups, &threads = given.threads;
  if (groups.x <= stated.groups.x && groups.y <= stated.groups.y && groups.z <= stated.groups.z &&
      threads.x == stated.threads.x && threads.y == stated.threads.y && threads.z == stated.threads.z)
    return;
  refuse(kernel, "expected at most " + text(stated.groups) + " threadgroups of " + text(stated.threads) +
                     " threads, got " + text(given.groups) + " of " + text(given.threads));
}

}  // namespace

Dispatch check_launch(const KernelInfo& kernel, Arguments& arguments, const Dispatch* given) {
  check_constants(kernel, arguments);
  check_bound(kernel, arguments);
  if (const char* requirement = kernel.violated(arguments))
    refuse(kernel, std::string("requires ") + requirement + ", got " + values_text(kernel, arguments));
  check_sizes(kernel, arguments);

  Dispatch dispatch;
  if (given) {
    dispatch = *given;
  } else if (kernel.dispatch) {
    kernel.dispatch(arguments, dispatch);
  } else {
    refuse(kernel, "expected groups and threads, since the kernel states no Dispatch");
  }
  check_dispatch(kernel, dispatch);
  if (given && kernel.dispatch) {
    Dispatch stated;
    kernel.dispatch(arguments, stated);
    check_stated(kernel, *given, stated);
  }
  return dispatch;
}

}  // namespace pyturbo
