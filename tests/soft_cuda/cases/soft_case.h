// What the cases share: a context with a stream, memory and kernels, and what must be left when a case is
// over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "cuda/nvrtc.h"
#include "native_test.h"
#include "soft_cuda/soft_cuda.h"

namespace soft_case {

using namespace pyturbo::cuda;
using soft_cuda::Rule;

#define SOFT_CASE_DECLARE(name, symbol, parameters) extern "C" Result symbol parameters;
PYTURBO_CUDA_FUNCTIONS(SOFT_CASE_DECLARE)
#undef SOFT_CASE_DECLARE
#define SOFT_CASE_DECLARE(result, name, symbol, parameters) extern "C" result symbol parameters;
PYTURBO_NVRTC_FUNCTIONS(SOFT_CASE_DECLARE)
#undef SOFT_CASE_DECLARE

constexpr unsigned kThreads = 256;  // of the kernel `add`

// The parameters of y = a + b over `count` floats.
struct Add {
  Address a, b, y;
  uint32_t count;
  void* pointers[4] = {&a, &b, &y, &count};

  Add(Address a, Address b, Address y, uint32_t count) : a(a), b(b), y(y), count(count) {}
  Add(const Add&) = delete;
  KernelNode node(FunctionHandle function) {
    return {function, 1, 1, 1, kThreads, 1, 1, 0, pointers, nullptr, nullptr, nullptr};
  }
};

// Owns what it hands out until it goes.
class Soft {
 public:
  Soft();
  ~Soft();
  Soft(const Soft&) = delete;
  Soft& operator=(const Soft&) = delete;

  StreamHandle stream() const { return stream_; }
  Address floats(uint32_t count, float value = 0);
  std::vector<float> read(Address address, uint32_t count);  // waits
  FunctionHandle function(const char* name, const std::vector<std::string>& options = {});
  Result launch(const KernelNode& node);
  Result wait() { return cuStreamSynchronize(stream_); }

 private:
  StreamHandle stream_ = nullptr;
  std::vector<Address> memory_;
  std::vector<ModuleHandle> modules_;
};

// Compiles an instance of a text with its name; returns NVRTC's result, and the image or the log.
int compile(const std::string& name, std::vector<std::string> options, std::string& out);

// Runs `body` and expects at least one violation, of this rule alone, and no object left.
void breaks(Rule rule, const std::function<void(Soft&)>& body);

// Runs `body` and expects no violation and no object left.
void keeps(const std::function<void(Soft&)>& body);

}  // namespace soft_case
