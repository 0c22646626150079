// The kinds of devices that this process knows, and the devices that are open in it.
#pragma once

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
  std::vector<std::string> names();        // of available kinds, by rank, then by the order of additions
  DeviceKind find(std::string_view name);  // throws Error{argument} when names() does not have it
  std::mutex& mutex() { return mutex_; }   // for hold_across_forks

 private:
  const std::vector<DeviceKind>& available();  // forgets other kinds; the caller holds the lock

  std::mutex mutex_;
  std::vector<DeviceKind> kinds_;  // available() has not been asked of those that have it
};

// Closes all open devices, for the end of the process.
void close_devices();

}  // namespace pyturbo
