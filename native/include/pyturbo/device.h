// A device runs launches. The CPU device is native/cpu/device.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pyturbo/kernel.h"
#include "pyturbo/storage.h"

namespace pyturbo {

// Owner: shared by the Python Device and every Kernel made from it. All methods may be called from any
// thread; run() blocks until the kernel has finished and needs no Python.
class Device {
 public:
  explicit Device(std::string name) : name_(std::move(name)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  void close() { closed_.store(true, std::memory_order_release); }

  // The kernel of that name in the form this device runs. Throws Error{argument} with near names.
  virtual const KernelInfo& kernel(std::string_view name) const = 0;

  virtual std::shared_ptr<Storage> allocate(uint64_t bytes) = 0;

  // Checks the launch (core/launch.h), completes `dispatch` where it is null, and runs it.
  void launch(const KernelInfo& kernel, const Arguments& arguments, const Dispatch* dispatch);

  // Runs a launch that check_launch has completed.
  void replay(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch);

 protected:
  virtual void run(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch) = 0;

 private:
  std::string name_;
  std::atomic<bool> closed_{false};
};

struct DeviceOptions {
  unsigned threads = 0;  // 0: one per core
  bool checked = false;  // run every kernel under the checker
};

std::vector<std::string> device_names();  // best first
std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options);

}  // namespace pyturbo
