// Handles of the driver and the objects that they name.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "control.h"

namespace soft_cuda {

// The objects of one class. A handle is the address of an owner that only this table knows. Owner: the
// process. Any thread; one lock.
template <typename T>
class Handles {
 public:
  explicit Handles(const char* name) : name_(name) {}

  void* add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    auto* owner = new std::shared_ptr<T>(std::move(object));
    owners_.insert(owner);
    object_created(name_);
    return owner;
  }

  // Null, after a violation, for a handle that does not exist.
  std::shared_ptr<T> get(const void* handle) {
    const std::lock_guard lock(mutex_);
    auto* owner = static_cast<std::shared_ptr<T>*>(const_cast<void*>(handle));
    if (owners_.contains(owner)) return *owner;
    violate(Rule::handle, std::string("expected a ") + name_ + ", got a handle of none");
    return nullptr;
  }

  // Null, after a violation, for a handle that does not exist.
  std::shared_ptr<T> remove(const void* handle) {
    std::shared_ptr<T> object = get(handle);
    if (!object) return nullptr;
    const std::lock_guard lock(mutex_);
    auto* owner = static_cast<std::shared_ptr<T>*>(const_cast<void*>(handle));
    owners_.erase(owner);
    delete owner;
    object_gone(name_);
    return object;
  }

 private:
  const char* const name_;
  std::mutex mutex_;
  std::set<std::shared_ptr<T>*> owners_;
};

}  // namespace soft_cuda
