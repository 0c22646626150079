// What commands use, shared between an object of the API and the commands encoded with it: an object may be
// released while its commands still wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pyturbo/kernel.h"

namespace soft_metal {

inline constexpr uint64_t kPage = 16384;  // Apple's, whatever the host has

uint64_t now();        // nanoseconds of the monotonic clock: the CPU's
uint64_t gpu_ticks();  // the GPU's clock, which ticks once in 40 of these

// Something that a command buffer without references must not lose.
struct Resource {
  std::atomic<int> unretained_uses{0};  // by command buffers that have not finished
  std::atomic<bool> released{false};    // by the last owner of the API object
};

// The bytes of a buffer.
struct Memory : Resource {
  // Zeroed memory of its own; null when there is none.
  static std::shared_ptr<Memory> allocate(uint64_t length);
  // The caller's memory.
  static std::shared_ptr<Memory> wrap(void* data, uint64_t length);
  ~Memory();

  static uint64_t allocated();  // bytes of all that live

  uint8_t* data = nullptr;
  uint64_t length = 0;
  bool owned = false;
  bool untracked = false;  // MTLHazardTrackingModeUntracked
};

// Values of function constants by [[function_constant(index)]].
struct ConstantValue {
  pyturbo::DType dtype;
  std::vector<uint8_t> bytes;
};
using ConstantValues = std::map<uint64_t, ConstantValue>;

// A kernel with its constants, ready to run.
struct Pipeline : Resource {
  const pyturbo::KernelInfo* kernel = nullptr;  // of Variant::reference
  std::vector<std::vector<uint8_t>> values;     // what `constants` points to
  const void* constants[pyturbo::kMaxConstants] = {};
  uint32_t max_threads = 0;
  bool multiple_of_simd_width = false;

  // Whether the argument exists with these constants.
  bool takes(const pyturbo::ArgumentInfo& argument) const;
};

// The value of a shared event.
class Event : public Resource {
 public:
  void signal(uint64_t value);
  uint64_t value() const;
  // False when the value is not reached in time.
  bool wait(uint64_t value, uint32_t milliseconds);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t value_ = 0;
};

// The timestamps of a counter sample buffer.
struct Samples : Resource {
  explicit Samples(uint64_t count) : timestamps(count) {
    for (auto& timestamp : timestamps) timestamp = ~uint64_t(0);  // MTLCounterErrorValue
  }
  std::vector<std::atomic<uint64_t>> timestamps;
};

}  // namespace soft_metal
