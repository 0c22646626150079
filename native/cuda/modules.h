// Kernels that are loaded on the GPU, by kernel and function constants.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "core/instances.h"
#include "cuda/compiler.h"
#include "cuda/stream.h"
#include "pyturbo/device.h"

namespace pyturbo::cuda {

// How a form for NVIDIA's matrix units divides the work of a kernel; without one, as the contract says.
struct Form {
  uint32_t span = 1;          // threadgroups of the contract along x that are one
  uint32_t threads = 0;       // of it; 0: as in the contract
  uint32_t shared_bytes = 0;  // dynamic shared memory
  uint32_t parts = 1;         // threadgroups along x that one of the contract becomes

  // Returns what is wrong with it for a kernel that has at most this many threads, or nothing.
  std::string wrong(uint32_t max_threads) const;

  Dispatch of(Dispatch contract) const;
};
static_assert(sizeof(Form) == 16, "as kernels have it");

struct Function {
  FunctionHandle handle = nullptr;
  uint32_t max_threads = 0;  // of a threadgroup
  Form form;
};

// Owner: the device, and graphs with its functions. Any thread; one lock for the table, and one that a thread
// holds while it compiles and loads kernels, so that launches of others go on. The context must be current.
class Modules {
 public:
  Modules(std::shared_ptr<Stream> stream, Precision precision);
  ~Modules();
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;

  Compiler& compiler() { return compiler_; }

  // Compiles the kernels of launches that are not loaded yet, several at once, and loads them. `progress` is
  // called with those compiled or found on disk, and their number. Throws Error{device} where that fails.
  void prepare(std::span<const ReadyLaunch> launches,
               const std::function<void(uint64_t done, uint64_t total)>& progress);

  // Returns the function of a kernel, which was prepared.
  Function get(const KernelInfo& kernel, const void* const* constants);

 private:
  struct Module {
    ModuleHandle handle;
    Function function;
  };

  bool find(const InstanceKey& key, Function& function);
  void load(const InstanceKey& key, const std::vector<char>& image);
  // Reads the form of a function; `wrong` says what cannot be one.
  Result take_form(ModuleHandle module, const std::string& symbol, Function& function, std::string& wrong);

  const std::shared_ptr<Stream> stream_;
  Compiler compiler_;
  std::mutex compiling_;  // locked before mutex_
  std::mutex mutex_;
  std::map<InstanceKey, Module> modules_;
};

}  // namespace pyturbo::cuda
