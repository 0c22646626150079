#include "cuda/context.h"

#include "pyturbo/process.h"

namespace pyturbo::cuda {

Context::Context(const Driver& driver, DeviceId device, std::string name)
    : driver_(driver), device_(device), name_(std::move(name)), born_(fork_count()) {
  require(driver, driver.context_retain(&handle_, device), name_ + ": the GPU cannot be opened");
}

Context::~Context() {
  if (opened_here()) driver_.context_release(device_);
}

bool Context::opened_here() const { return born_ == fork_count(); }

std::string Context::device_name() const {
  char name[256] = {};
  driver_.device_name(name, sizeof name - 1, device_);
  return name;
}

uint64_t Context::device_memory() const {
  size_t bytes = 0;
  driver_.device_memory(&bytes, device_);
  return bytes;
}

int Context::attribute(Attribute attribute) const {
  int value = 0;
  driver_.device_attribute(&value, attribute, device_);
  return value;
}

}  // namespace pyturbo::cuda
