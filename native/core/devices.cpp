#include "core/devices.h"

#include <algorithm>

#include "pyturbo/device.h"
#include "pyturbo/error.h"
#include "pyturbo/process.h"

namespace pyturbo {
namespace {

// Never destroyed: threads that are not ours may run until the very end of the process. Made by the first
// call, which may come from the initialisation of any file.
DeviceRegistry& device_registry() {
  static DeviceRegistry& instance = []() -> DeviceRegistry& {
    DeviceRegistry& kinds = *new DeviceRegistry;
    hold_across_forks(kinds.mutex());
    return kinds;
  }();
  return instance;
}

// Owner: the process, which never destroys it. Any thread; one lock.
struct OpenDevices {
  std::mutex mutex;
  std::vector<std::weak_ptr<Device>> all;

  OpenDevices() { hold_across_forks(mutex); }

  void add(const std::shared_ptr<Device>& device) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const std::weak_ptr<Device>& known) { return known.expired(); });
    all.push_back(device);
  }
  std::vector<std::weak_ptr<Device>> take() {
    const std::lock_guard lock(mutex);
    return std::move(all);
  }
};

OpenDevices& open_devices() {
  static OpenDevices& instance = *new OpenDevices;
  return instance;
}

}  // namespace

void DeviceRegistry::add(const DeviceKind& kind) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kinds_, [&](const DeviceKind& known) { return known.name == kind.name; });
  const auto worse = [&](const DeviceKind& known) { return kind.rank < known.rank; };
  kinds_.insert(std::find_if(kinds_.begin(), kinds_.end(), worse), kind);
}

std::vector<std::string> DeviceRegistry::names() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const DeviceKind& kind : available()) names.push_back(kind.name);
  return names;
}

DeviceKind DeviceRegistry::find(std::string_view name) {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (const DeviceKind& kind : available()) {
    if (kind.name == name) return kind;
    names += (names.empty() ? "" : ", ") + kind.name;
  }
  throw Error(ErrorKind::argument, "expected a device among " + names + ", got " + std::string(name));
}

const std::vector<DeviceKind>& DeviceRegistry::available() {
  std::erase_if(kinds_, [](DeviceKind& kind) { return kind.available && !kind.available(); });
  for (DeviceKind& kind : kinds_) kind.available = nullptr;
  return kinds_;
}

void add_device(const DeviceKind& kind) { device_registry().add(kind); }

std::vector<std::string> device_names() { return device_registry().names(); }

Traits device_traits(std::string_view name) { return device_registry().find(name).traits; }

std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options) {
  const DeviceKind kind = device_registry().find(name);
  if (process_ends()) throw Error(ErrorKind::state, kind.name + ": the process is ending");
  const std::shared_ptr<Device> device(kind.open(kind, options).release(), [](Device* opened) {
    if (opened->opened_here()) delete opened;
  });
  open_devices().add(device);
  return device;
}

void close_devices() {
  for (const std::weak_ptr<Device>& known : open_devices().take())
    if (const std::shared_ptr<Device> device = known.lock()) device->close();
}

}  // namespace pyturbo
