// The kinds of devices that this process knows, and the devices that are open in it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pyturbo/device_kind.h"

namespace pyturbo {

// Owner: the process (device_registry()), which never destroys it. Any thread; one lock, held for additions
// and look-ups.
class DeviceRegistry {
 public:
  void add(const DeviceKind& kind);
  std::vector<std::string> names();  // of available kinds, by rank, then by the order of additions
  std::shared_ptr<const DeviceKind> find(
      std::string_view name);             // throws Error{argument} when names() does not have it
  std::mutex& mutex() { return mutex_; }  // for hold_across_forks

 private:
  struct Entry {
    std::shared_ptr<const DeviceKind> kind;
    bool asked;  // and found available
  };
  const std::vector<Entry>& available();  // drops kinds that are not; the caller holds the lock

  std::mutex mutex_;
  std::vector<Entry> entries_;  // by rank
};

// Closes all open devices, for the end of the process.
void close_devices();

}  // namespace pyturbo
