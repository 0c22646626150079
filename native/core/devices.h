// The kinds of devices that this process knows.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pyturbo/device_kind.h"

namespace pyturbo {

// Owner: the process (device_registry()), which never destroys it. Any thread; one lock, held for additions
// and look-ups, but not while a kind is asked whether it is available: a driver may fork then.
class DeviceRegistry {
 public:
  // Throws Error{argument} for a name that was added before.
  void add(const DeviceKind& kind);
  // Returns the names of available kinds, by rank, then in alphabetical order.
  std::vector<std::string> names();
  // Returns the kinds that are not available, with what is missing for them.
  std::vector<MissingDevice> missing();
  // Throws Error{argument} for a name that names() does not have.
  std::shared_ptr<const DeviceKind> find(std::string_view name);
  std::mutex& mutex() { return mutex_; }  // for hold_across_forks

 private:
  struct Entry {
    std::shared_ptr<const DeviceKind> kind;
    bool asked;  // whether kind->available was asked, or is null
  };
  // Drops the kinds that this machine does not have. Several threads may ask at once. The caller does not
  // hold the lock.
  void drop_unavailable();

  std::mutex mutex_;
  std::vector<Entry> entries_;  // by rank and name
  std::vector<MissingDevice> missing_;
};

}  // namespace pyturbo
