// A device runs launches. The CPU device is native/cpu/device.cpp, the Metal device native/metal/device.mm.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pyturbo/kernel.h"
#include "pyturbo/process.h"
#include "pyturbo/storage.h"

namespace pyturbo {

// A launch that check_launch has completed.
struct ReadyLaunch {
  const KernelInfo* kernel;
  const Arguments* arguments;
  Dispatch dispatch;
  bool waits;         // for launches before it
  const char* label;  // of its place in a model, for messages
};

// Owner: shared by the Python Device and every Kernel made from it. All methods may be called from any
// thread and need no Python. A device belongs to the process that opened it: a child of fork() is refused
// before any lock is taken, and drops the device without destroying it.
class Device {
 public:
  explicit Device(std::string name) : name_(std::move(name)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  // Refuses all work: it was closed, or opened before a fork.
  bool closed() const { return state_.load() != State::open || !opened_here(); }
  bool opened_here() const { return born_ == fork_count(); }
  // Throws Error{state} where it is closed.
  void require_open() const;
  // Waits for replays that run, and gives back what the device holds.
  void close();

  // What a user wants to know of the device, as name and value.
  virtual std::vector<std::pair<std::string, std::string>> properties() const { return {}; }

  // The kernel of that name in the form this device runs. Throws Error{argument} with near names.
  const KernelInfo& kernel(std::string_view name) const;

  virtual std::shared_ptr<Storage> allocate(uint64_t bytes) = 0;

  // Tells that launches will touch this memory. False: the device cannot use it where it lies and would copy
  // it for every launch.
  virtual bool use(Storage& storage) {
    (void)storage;
    return true;
  }

  // Checks a launch (core/launch.h), completes it where `dispatch` is null, runs it and waits for it.
  void launch(const KernelInfo& kernel, const Arguments& arguments, const Dispatch* dispatch);

  // Runs launches in this order, one waiting for those before it only where it says so. Without `wait` it may
  // return before they are done; their memory must then stay until synchronize(). `seconds`, when given,
  // receives the time of each.
  void replay(const ReadyLaunch* launches, size_t count, bool wait, double* seconds);

  // Waits for everything that was begun in this process; throws what went wrong with it.
  virtual void synchronize() {}

 protected:
  virtual bool checked() const { return false; }
  virtual void run(const ReadyLaunch* launches, size_t count, bool wait, double* seconds) = 0;
  virtual void release() {}

 private:
  enum class State : uint8_t { open, closing, closed };
  class Replay;  // counts itself in replays_

  std::string name_;
  const uint32_t born_ = fork_count();
  std::atomic<State> state_{State::open};
  std::atomic<uint32_t> replays_{0};  // at work
};

// Of activations in products with quantised weights, on devices that round them.
enum class Precision : uint8_t {
  standard,  // 24 bits per group
  fast,      // 8 bits per group
};

struct DeviceOptions {
  unsigned threads = 0;  // 0: one per core
  bool checked = false;  // run every kernel under the checker
  Precision precision = Precision::standard;
};

using OpenDevice = std::unique_ptr<Device> (*)(const std::string& name, const DeviceOptions& options);

// Makes a kind of device known; `best`: in front of those there are, else behind them.
void add_device(const std::string& name, OpenDevice open, bool best);

std::vector<std::string> device_names();  // best first
std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options);

}  // namespace pyturbo
