// A launch with its parameters as they were when it was given: its checks and its execution by the reference
// kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "heap.h"
#include "pyturbo/kernel.h"
#include "soft_cuda.h"

namespace soft_cuda {

using pyturbo::cuda::Result;

// A loaded kernel with its constants.
struct Kernel {
  const pyturbo::KernelInfo* info = nullptr;  // of Variant::reference
  std::vector<std::vector<uint8_t>> values;   // what `constants` points to
  const void* constants[pyturbo::kMaxConstants] = {};
  std::atomic<uint32_t> allowed_bytes{0};  // of dynamic shared memory; 0: as much as any kernel

  // Whether the argument exists with these constants.
  bool takes(const pyturbo::ArgumentInfo& argument) const;
};

// A stretch of memory that a launch touches.
struct Access {
  const uint8_t* begin;
  const uint8_t* end;
  bool writes;
  const char* argument;
};

struct Launch {
  std::shared_ptr<const Kernel> kernel;
  pyturbo::Dispatch geometry;
  uint32_t shared_bytes = 0;
  std::vector<std::vector<uint8_t>> parameters;  // in the order of the kernel's parameters

  // Takes a launch as the driver is given it, and checks what can be told now. Returns invalid_value, after a
  // violation, when something is wrong.
  Result take(std::shared_ptr<const Kernel> kernel, const pyturbo::cuda::KernelNode& node);

  // The memory whose addresses it was given, and what it touches there by its contract. False, after a
  // violation, when something is wrong.
  bool resolve(pyturbo::Arguments& arguments, std::vector<Access>& accesses,
               std::vector<std::shared_ptr<Block>>& blocks) const;

  // False, after a violation, when the kernel fails.
  bool execute(const pyturbo::Arguments& arguments) const;

  const char* name() const { return kernel->info->name; }

 private:
  bool take_threadgroup(pyturbo::Arguments& arguments) const;
  const std::vector<uint8_t>& parameter(uint32_t argument) const;
};

bool depend(const Access& a, const Access& b);

}  // namespace soft_cuda
