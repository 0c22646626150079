#include "cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "pyturbo/error.h"
#include "pyturbo/process.h"

namespace pyturbo::cuda {
namespace {

// Fills the table. Returns what is missing, or an empty string.
std::string fill(Driver& driver, void* library, const std::string& name) {
#define PYTURBO_CUDA_LOOKUP(member, symbol, parameters) \
  driver.member = reinterpret_cast<decltype(driver.member)>(::dlsym(library, #symbol));
#define PYTURBO_CUDA_REQUIRE(member, symbol, parameters) \
  PYTURBO_CUDA_LOOKUP(member, symbol, parameters)        \
  if (!driver.member) return name + " has no " #symbol ": expected a driver for CUDA 12 or newer";
  PYTURBO_CUDA_FUNCTIONS(PYTURBO_CUDA_REQUIRE)
  PYTURBO_CUDA_NEWER_FUNCTIONS(PYTURBO_CUDA_LOOKUP)
#undef PYTURBO_CUDA_REQUIRE
#undef PYTURBO_CUDA_LOOKUP
  return "";
}

OpenedDriver open_driver() {
  static Driver driver;
  const std::string name = driver_is_named() ? std::getenv("PYTURBO_CUDA_DRIVER") : "libcuda.so.1";
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return {nullptr, "the driver of NVIDIA cannot be opened: " + std::string(::dlerror()), 0};
  std::string missing = fill(driver, library, name);
  if (missing.empty())
    if (const Result result = driver.init(0); result != Result::success)
      missing = "the driver cannot be started: " + text(driver, result);
  return {missing.empty() ? &driver : nullptr, missing, fork_count()};
}

}  // namespace

bool driver_is_named() {
  const char* name = std::getenv("PYTURBO_CUDA_DRIVER");
  return name && *name;
}

const OpenedDriver& opened_driver() {
  static const OpenedDriver& opened = *new OpenedDriver(open_driver());
  return opened;
}

std::string text(const Driver& driver, Result result) {
  const char *name = nullptr, *meaning = nullptr;
  driver.error_name(result, &name);
  driver.error_string(result, &meaning);
  if (!name) return "CUDA error " + std::to_string(int(result));
  return std::string(name) + (meaning ? std::string(": ") + meaning : "");
}

void require(const Driver& driver, Result result, const std::string& what) {
  if (result == Result::success) return;
  const bool memory = result == Result::out_of_memory;
  throw Error(memory ? ErrorKind::memory : ErrorKind::device, what + ": " + text(driver, result));
}

}  // namespace pyturbo::cuda
