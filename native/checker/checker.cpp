#include "checker/checker.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "pyturbo/error.h"
#include "simt/executor.h"

namespace pyturbo::checker {
namespace {

constexpr uintptr_t kModulePage = 4096;
constexpr int64_t kFar = int64_t(1) << 36;  // bytes that a 32-bit index of 16-byte elements can reach

// Copies the function constants into the checker's own memory, which kernels may always read.
void copy_constants(Arguments& arguments, const KernelInfo& info, std::byte (*storage)[16]) {
  for (uint32_t i = 0; i < info.constant_count; ++i) {
    const ConstantInfo& c = info.constants[i];
    const void*& value = arguments.constants[c.slot];
    if (!value || c.size > sizeof(*storage)) continue;
    value = std::memcpy(storage[c.slot], value, c.size);
  }
}

const char* verb(uint32_t how) {
  if (how & kAtomic) return how & kWrite ? "atomic update" : "atomic read";
  return how & kWrite ? "write" : "read";
}

}  // namespace

void run_checked(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch) {
  Checker checker(info, arguments, dispatch);
  const simt::Launch launch{info, checker.arguments(), dispatch, &checker};
  simt::Threadgroup& executor = simt::Threadgroup::this_thread();
  try {
    for (uint64_t i = 0; i < dispatch.groups.count(); ++i)
      executor.run(launch, simt::group_at(dispatch.groups, i));
  } catch (...) {
    checker.copy_back();
    throw;
  }
  checker.copy_back();
}

Checker::Checker(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch)
    : dispatch_(dispatch), arguments_(arguments), memory_(info, arguments_) {
  copy_constants(arguments_, info, constants_);
}

void Checker::begin_group(simt::Threadgroup& group) {
  group_ = &group;
  memory_.begin_group();
  device_clock_.begin_group();
  threadgroup_clock_.begin_group();
}

void Checker::simdgroup_release(uint32_t simdgroup, const simt::Simdgroup& lanes) {
  if (lanes.ready != lanes.all) return;  // nothing is ordered with respect to absent lanes
  uint32_t memory = simt::kMemDevice | simt::kMemThreadgroup;
  for (uint32_t m = lanes.ready; m; m &= m - 1) memory &= lanes.memory[std::countr_zero(m)];
  if (memory & simt::kMemDevice) device_clock_.simdgroup_barrier(simdgroup);
  if (memory & simt::kMemThreadgroup) threadgroup_clock_.simdgroup_barrier(simdgroup);
}

void Checker::threadgroup_release(uint32_t memory) {
  if (memory & simt::kMemDevice) device_clock_.threadgroup_barrier();
  if (memory & simt::kMemThreadgroup) threadgroup_clock_.threadgroup_barrier();
}

// A place in memory, as reports name it.
struct Checker::Place {
  const char* kind;
  const char* name;
  int64_t offset;
  size_t size;
};

Checker::Place Checker::place_of(const Slot& slot, const std::byte* address) const {
  const int64_t offset = address - slot.base;
  if (slot.threadgroup()) return {"threadgroup variable", slot.name, offset, slot.size};
  const Binding* binding = &slot.bindings[0];
  for (const Binding& b : slot.bindings) {
    if (int64_t(b.begin) <= offset && offset < int64_t(b.end)) {
      binding = &b;
      break;
    }
    if (b.end > binding->end) binding = &b;
  }
  const ArgumentInfo& a = *binding->argument;
  return {a.kind == ArgumentKind::value ? "value"
          : a.writable                  ? "buffer"
                                        : "read-only buffer",
          a.name, offset - int64_t(binding->begin), binding->end - binding->begin};
}

void Checker::access(const std::byte* address, size_t size, uint32_t how) {
  if (size == 0 || group_->owns(address)) return;  // most accesses are to stacks
  const Slot* slot = memory_.find(address);
  if (!slot || size > slot->size - size_t(address - slot->base)) return check_outside(address, size, how);
  const size_t offset = size_t(address - slot->base);
  if (how & kWrite && !slot->writable(offset, offset + size)) {
    const Place p = place_of(*slot, address);
    report("%s of %zu bytes at byte %lld of %s '%s'", verb(how), size, static_cast<long long>(p.offset),
           p.kind, p.name);
  }
  if (!slot->shadow) return;
  const bool shared = slot->threadgroup();
  const Clock& clock = shared ? threadgroup_clock_ : device_clock_;
  const Mark now = clock.now(group_->thread(), how & kAtomic, group_->statement());
  const Conflict conflict =
      record_access(slot->shadow + offset, size, how, clock, now, /*must_be_written=*/shared);
  if (conflict.kind != Conflict::none) report_conflict(*slot, address, how, conflict);
}

// Checks an address outside of all slots: the checker's own memory, a constant of the kernel's library, or a
// violation.
void Checker::check_outside(const std::byte* address, size_t size, uint32_t how) {
  if (size_t(address - reinterpret_cast<const std::byte*>(this)) < sizeof(*this)) return;
  if (!(how & kWrite) && in_module(address)) return;
  const Slot* slot = memory_.nearest(address);
  const Place p = slot ? place_of(*slot, address) : Place{};
  if (!slot || p.offset > kFar || p.offset < -kFar) {
    report("%s of %zu bytes at address %p, which no argument covers", verb(how), size,
           static_cast<const void*>(address));
  }
  report("%s of %zu bytes at byte %lld of %s '%s', which has %zu bytes", verb(how), size,
         static_cast<long long>(p.offset), p.kind, p.name, p.size);
}

bool Checker::in_module(const std::byte* address) {
  const uintptr_t page = reinterpret_cast<uintptr_t>(address) / kModulePage;
  if (module_pages_.count(page)) return true;
  Dl_info module;
  if (!dladdr(address, &module)) return false;
  module_pages_.insert(page);
  return true;
}

void Checker::report_conflict(const Slot& slot, const std::byte* address, uint32_t how,
                              const Conflict& conflict) {
  const Place p = place_of(slot, address + conflict.byte);
  if (conflict.kind == Conflict::unwritten) {
    report("%s of %s '%s' at byte %lld, which no thread has written yet", verb(how), p.kind, p.name,
           static_cast<long long>(p.offset));
  }
  const Clock& clock = slot.threadgroup() ? threadgroup_clock_ : device_clock_;
  const char* before = conflict.other_wrote ? "written" : "read";
  const char* after = !(how & kWrite) ? "read" : conflict.other_wrote ? "written again" : "written";
  char other[64] = "";
  PlaceText where = "";
  if (!clock.this_group(conflict.other)) {
    const Extent g = simt::group_at(dispatch_.groups, clock.group_of(conflict.other));
    std::snprintf(other, sizeof(other), " of threadgroup (%u,%u,%u)", g.x, g.y, g.z);
  }
  if (conflict.other.statement) write_place(conflict.other.statement, where);
  report("race on %s '%s' at byte %lld: %s by thread %u%s%s%s, %s %s", p.kind, p.name,
         static_cast<long long>(p.offset), before, unsigned(conflict.other.thread), other,
         *where ? " at " : "", where, after, *other ? "by another threadgroup" : "without a barrier between");
}

// Writes file and line of a statement. Nothing is allocated, because a report does not return and could not
// free it.
void Checker::write_place(uint32_t statement, PlaceText& out) const {
  const KernelInfo& kernel = group_->launch().info;
  const char* file = kernel.files ? kernel.files[statement >> simt::kLineBits] : kernel.file;
  std::snprintf(out, sizeof(out), "%s:%u", file, statement & ((1u << simt::kLineBits) - 1));
}

void Checker::report(const char* format, ...) {
  char text[768];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const KernelInfo& kernel = group_->launch().info;
  if (const uint32_t statement = group_->statement()) {
    PlaceText place;
    write_place(statement, place);
    group_->fail(", thread %u: %s (%s)", group_->thread(), text, place);
  }
  if (const uint32_t site = group_->last_site()) {
    group_->fail(", thread %u: %s (%s, after line %u)", group_->thread(), text, kernel.file, site);
  }
  group_->fail(", thread %u: %s (%s:%u)", group_->thread(), text, kernel.file, kernel.line);
}

void access(const volatile void* address, size_t size, uint32_t how) {
  const simt::Threadgroup* group = simt::current_threadgroup;
  if (!group || !group->launch().observer) return;
  group->launch().observer->access(static_cast<const std::byte*>(const_cast<const void*>(address)), size,
                                   how);
}

}  // namespace pyturbo::checker
