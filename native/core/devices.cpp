#include "core/devices.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "pyturbo/device.h"
#include "pyturbo/error.h"
#include "pyturbo/process.h"

namespace pyturbo {
namespace {

// Never destroyed: threads that are not ours may run until the very end of the process. Created by the first
// call, which may come from the static initialisation of any file.
DeviceRegistry& device_registry() {
  static DeviceRegistry& instance = []() -> DeviceRegistry& {
    DeviceRegistry& kinds = *new DeviceRegistry;
    hold_across_forks(kinds.mutex());
    return kinds;
  }();
  return instance;
}

}  // namespace

void DeviceRegistry::add(const DeviceKind& kind) {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_)
    if (entry.kind->name == kind.name)
      throw Error(ErrorKind::argument, "device: expected a new name, got " + kind.name);
  const auto worse = [&](const Entry& entry) {
    return std::tie(kind.rank, kind.name) < std::tie(entry.kind->rank, entry.kind->name);
  };
  entries_.insert(std::find_if(entries_.begin(), entries_.end(), worse),
                  {std::make_shared<DeviceKind>(kind), /*asked=*/!kind.available});
}

std::vector<std::string> DeviceRegistry::names() {
  drop_unavailable();
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.kind->name);
  return names;
}

std::shared_ptr<const DeviceKind> DeviceRegistry::find(std::string_view name) {
  drop_unavailable();
  const std::lock_guard lock(mutex_);
  std::string names;
  for (const Entry& entry : entries_) {
    if (entry.kind->name == name) return entry.kind;
    names += (names.empty() ? "" : ", ") + entry.kind->name;
  }
  std::string reason;
  for (const MissingDevice& missing : missing_)
    if (missing.name == name) reason = ": " + missing.reason;
  throw Error(ErrorKind::argument,
              "device: expected one of " + names + ", got '" + std::string(name) + "'" + reason);
}

std::vector<MissingDevice> DeviceRegistry::missing() {
  drop_unavailable();
  const std::lock_guard lock(mutex_);
  return missing_;
}

void DeviceRegistry::drop_unavailable() {
  const auto first_unasked = [&] {
    return std::find_if(entries_.begin(), entries_.end(), std::not_fn(&Entry::asked));
  };
  std::unique_lock lock(mutex_);
  for (auto entry = first_unasked(); entry != entries_.end(); entry = first_unasked()) {
    const std::shared_ptr<const DeviceKind> kind = entry->kind;
    lock.unlock();
    const bool available = kind->available();
    std::string reason = available || !kind->missing ? "" : kind->missing();
    lock.lock();
    entry = std::find_if(entries_.begin(), entries_.end(),
                         [&](const Entry& other) { return other.kind == kind && !other.asked; });
    if (entry == entries_.end()) continue;  // another thread has had the answer meanwhile
    entry->asked = true;
    if (available) continue;
    if (!reason.empty()) missing_.push_back({kind->name, std::move(reason)});
    entries_.erase(entry);
  }
}

void add_device(const DeviceKind& kind) { device_registry().add(kind); }

std::vector<MissingDevice> missing_devices() { return device_registry().missing(); }

std::vector<std::string> device_names() { return device_registry().names(); }

std::shared_ptr<const DeviceKind> find_device(std::string_view name) { return device_registry().find(name); }

std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options) {
  const std::shared_ptr<const DeviceKind> kind = find_device(name);
  if (process_ends()) throw Error(ErrorKind::state, kind->name + ": the process is ending");
  const std::shared_ptr<Device> device(kind->open(*kind, options).release(), [](Device* opened) {
    if (opened->opened_here()) delete opened;
  });
  close_at_end(device);
  return device;
}

}  // namespace pyturbo
