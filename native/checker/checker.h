// Checked execution: every access of a kernel is examined before it happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

#include "checker/access.h"
#include "checker/checked_memory.h"
#include "checker/shadow.h"
#include "pyturbo/kernel.h"
#include "simt/threadgroup.h"

namespace pyturbo::checker {

// Runs all threadgroups in order on the calling thread. `info` should come from a table compiled as
// Variant::checked; other kernels are checked only at barriers. Throws Error{device} at the first violation.
// Writable buffers then hold the bytes written before it.
void run_checked(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch);

// The checks of one launch. Owner: run_checked; used by its OS thread alone, no lock.
class Checker final : public simt::Observer {
 public:
  Checker(const KernelInfo& info, const Arguments& arguments, const Dispatch& dispatch);
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  const Arguments& arguments() const { return arguments_; }  // with addresses of the checked copies
  void copy_back() const { memory_.copy_back(); }

  void begin_group(simt::Threadgroup& group) override;
  void* place(size_t size, const char* name) override { return memory_.place(size, name); }
  void simdgroup_release(uint32_t simdgroup, const simt::Simdgroup& lanes) override;
  void threadgroup_release(uint32_t memory) override;
  void access(const std::byte* address, size_t size, uint32_t how) override;

 private:
  void check_outside(const std::byte* address, size_t size, uint32_t how);
  bool in_module(const std::byte* address);
  struct Place;
  Place place_of(const Slot& slot, const std::byte* address) const;
  using PlaceText = char[160];
  void write_place(uint32_t statement, PlaceText& out) const;
  [[noreturn]] void report_conflict(const Slot& slot, const std::byte* address, uint32_t how,
                                    const Conflict& conflict);
  [[noreturn]] void report(const char* format, ...) __attribute__((format(printf, 2, 3)));

  Dispatch dispatch_;
  Arguments arguments_;
  alignas(16) std::byte constants_[kMaxConstants][16] = {};
  CheckedMemory memory_;
  Clock device_clock_{/*forget=*/false};
  Clock threadgroup_clock_{/*forget=*/true};
  simt::Threadgroup* group_ = nullptr;
  std::unordered_set<uintptr_t> module_pages_;  // known to belong to a loaded library
};

}  // namespace pyturbo::checker
