// A device runs launches. The CPU device is native/cpu/device.cpp, the Metal device native/metal/device.mm.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pyturbo/device_kind.h"
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
  explicit Device(const DeviceKind& kind) : name_(kind.name), traits_(kind.traits) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  const Traits& traits() const { return traits_; }
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

  // Prepares memory that launches will touch. Returns false where the device cannot use it in place
  // (Traits::host_memory) and would copy it for every launch.
  bool use(Storage& storage);

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
  // Prepares memory that kernels can use in place.
  virtual void attach(Storage&) {}

 private:
  enum class State : uint8_t { open, closing, closed };
  class Replay;  // counts itself in replays_

  const std::string name_;
  const Traits traits_;
  const uint32_t born_ = fork_count();
  std::atomic<State> state_{State::open};
  std::atomic<uint32_t> replays_{0};  // at work
};

}  // namespace pyturbo
