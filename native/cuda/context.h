// The context of a GPU, and making it current on a thread.
#pragma once

#include <string>

#include "cuda/driver.h"

namespace pyturbo::cuda {

// The primary context of a GPU, which other libraries of the process share. Owner: the device, and all
// memory, modules and graphs made in it. Any thread.
class Context {
 public:
  // `name` is that of the device, for messages. Throws Error{device} when the GPU refuses.
  Context(const Driver& driver, DeviceId device, std::string name);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  ContextHandle handle() const { return handle_; }
  // Objects made before a fork belong to the parent: their destructors must not call the driver.
  bool opened_here() const;

  std::string device_name() const;
  uint64_t device_memory() const;
  int attribute(Attribute attribute) const;
  int capability() const {  // 90 for compute capability 9.0
    return 10 * attribute(Attribute::compute_capability_major) +
           attribute(Attribute::compute_capability_minor);
  }

 private:
  const Driver& driver_;
  const DeviceId device_;
  const std::string name_;
  const uint32_t born_;
  ContextHandle handle_ = nullptr;
};

// Makes a context current on this thread for a scope.
class Current {
 public:
  explicit Current(const Context& context) : driver_(context.driver()) {
    require(driver_, driver_.context_push(context.handle()), context.name());
  }
  ~Current() {
    ContextHandle popped;
    driver_.context_pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace pyturbo::cuda
