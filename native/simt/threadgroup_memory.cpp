// Threadgroup memory, errors and the thread-local instance of Threadgroup; the functions of pyturbo/simt.h.
#pragma GCC visibility push(default)
#include "pyturbo/simt.h"
#pragma GCC visibility pop

#include <cstdarg>
#include <cstdio>
#include <memory>

#include "simt/threadgroup.h"

namespace pyturbo::simt {

constinit thread_local Threadgroup* current_threadgroup = nullptr;

namespace {

constexpr size_t kArgumentAlignment = 16;  // Metal's for [[threadgroup(n)]]

}  // namespace

Threadgroup& Threadgroup::this_thread() {
  thread_local std::unique_ptr<Threadgroup> instance;
  if (!instance) instance = std::make_unique<Threadgroup>();
  return *instance;
}

Threadgroup::Threadgroup() : stacks_(kMaxThreads) {}
Threadgroup::~Threadgroup() = default;

void Threadgroup::place_arguments() {
  const KernelInfo& kernel = launch_->info;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& a = kernel.arguments[i];
    if (a.kind != ArgumentKind::threadgroup) continue;
    argument_[a.index] = place(launch_->arguments.threadgroup_bytes[a.index], kArgumentAlignment, a.name);
    if (!argument_[a.index]) return;
  }
}

// Returns memory for one variable, or null with the error set when the group's memory is used up.
void* Threadgroup::place(size_t size, size_t alignment, const char* name) {
  const size_t offset = (memory_used_ + alignment - 1) & ~(alignment - 1);
  if (size > kMaxThreadgroupBytes || offset + size > kMaxThreadgroupBytes) {
    set_error(": threadgroup memory: expected at most %u bytes, got %zu up to variable '%s'",
              kMaxThreadgroupBytes, offset + size, name);
    return nullptr;
  }
  memory_used_ = offset + size;
  if (launch_->observer) return launch_->observer->place(size, name);
  return memory_ + offset;
}

void* Threadgroup::threadgroup_variable(uint32_t slot, size_t size, size_t alignment, const char* name) {
  if (slot >= kMaxThreadgroupVariables) {
    fail(": expected at most %u threadgroup variables, got '%s' as number %u", kMaxThreadgroupVariables, name,
         slot + 1);
  }
  if (!(variables_placed_ >> slot & 1)) {
    variable_[slot] = place(size, alignment, name);
    if (!variable_[slot]) fiber_exit(main_);
    variables_placed_ |= uint64_t(1) << slot;
  }
  return variable_[slot];
}

namespace {

void format_error(char (&error)[1024], const KernelInfo& kernel, const Extent& group, const char* format,
                  va_list arguments) {
  const int used = std::snprintf(error, sizeof(error), "kernel %s, threadgroup (%u,%u,%u)", kernel.name,
                                 group.x, group.y, group.z);
  if (used > 0 && size_t(used) < sizeof(error)) {
    std::vsnprintf(error + used, sizeof(error) - size_t(used), format, arguments);
  }
}

}  // namespace

void Threadgroup::set_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  format_error(error_, launch_->info, group_, format, arguments);
  va_end(arguments);
}

void Threadgroup::fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  format_error(error_, launch_->info, group_, format, arguments);
  va_end(arguments);
  fiber_exit(main_);
}

Exchange& exchange(const void* value, uint32_t size, uint32_t site) {
  return current_threadgroup->exchange(value, size, site);
}
void threadgroup_barrier(uint32_t memory, uint32_t site) {
  current_threadgroup->threadgroup_barrier(memory, site);
}
void simdgroup_barrier(uint32_t memory, uint32_t site) {
  current_threadgroup->simdgroup_barrier(memory, site);
}
void* threadgroup_variable(uint32_t slot, size_t size, size_t alignment, const char* name) {
  return current_threadgroup->threadgroup_variable(slot, size, alignment, name);
}
void* threadgroup_argument(uint32_t index) { return current_threadgroup->threadgroup_argument(index); }
const void* function_constant(uint32_t slot) {
  return current_threadgroup->launch().arguments.constants[slot];
}
uint32_t lane() { return current_threadgroup->lane(); }
void set_statement(uint32_t statement) { current_threadgroup->set_statement(statement); }
uint32_t current_statement() { return current_threadgroup->statement(); }

}  // namespace pyturbo::simt
