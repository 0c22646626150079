#include "pyturbo/device.h"

#include <algorithm>
#include <mutex>

#include "core/launch.h"
#include "core/registry.h"
#include "cpu/device.h"
#include "pyturbo/error.h"
#if defined(PYTURBO_METAL)
#include "metal/device.h"
#endif

namespace pyturbo {
namespace {

// The names that share the longest beginning with `name`, for the message of a failed look-up.
std::string near_names(std::string_view name) {
  size_t best = 0;
  std::string near;
  for (const std::string& known : registry().names()) {
    const size_t common =
        size_t(std::mismatch(name.begin(), name.end(), known.begin(), known.end()).first - name.begin());
    if (common > best) {
      best = common;
      near.clear();
    }
    if (common == best && best > 0 && near.size() < 120) near += (near.empty() ? "" : ", ") + known;
  }
  return near;
}

struct Kind {
  std::string name;
  OpenDevice open;
};

std::vector<Kind> built_in() {
  std::vector<Kind> kinds = {{"cpu", cpu::make_device}, {"cpu:reference", cpu::make_device}};
#if defined(PYTURBO_METAL)
  if (metal::available()) kinds.insert(kinds.begin(), {"metal", metal::make_device});
#endif
  return kinds;
}

struct Kinds {
  std::mutex mutex;
  std::vector<Kind> all = built_in();
};

Kinds& kinds() {
  static Kinds instance;
  return instance;
}

}  // namespace

const KernelInfo& Device::kernel(std::string_view name) const {
  if (const KernelInfo* kernel = registry().find(name, checked() ? Variant::checked : Variant::reference))
    return *kernel;
  const std::string near = near_names(name);
  throw Error(ErrorKind::argument, "expected the name of a kernel, got " + std::string(name) +
                                       (near.empty() ? "" : "; there are " + near));
}

void Device::launch(const KernelInfo& kernel, const Arguments& arguments, const Dispatch* dispatch) {
  Arguments bound = arguments;
  const ReadyLaunch ready{&kernel, &bound, check_launch(kernel, bound, dispatch), false, ""};
  replay(&ready, 1, true, nullptr);
}

void Device::replay(const ReadyLaunch* launches, size_t count, bool wait, double* seconds) {
  if (closed()) throw Error(ErrorKind::state, name_ + ": the device is closed");
  run(launches, count, wait, seconds);
}

void add_device(const std::string& name, OpenDevice open, bool best) {
  const std::lock_guard lock(kinds().mutex);
  std::vector<Kind>& all = kinds().all;
  std::erase_if(all, [&](const Kind& kind) { return kind.name == name; });
  all.insert(best ? all.begin() : all.end(), {name, open});
}

std::vector<std::string> device_names() {
  const std::lock_guard lock(kinds().mutex);
  std::vector<std::string> names;
  for (const Kind& kind : kinds().all) names.push_back(kind.name);
  return names;
}

std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options) {
  std::string names;
  for (const std::string& known : device_names()) names += (names.empty() ? "" : ", ") + known;
  OpenDevice open = nullptr;
  {
    const std::lock_guard lock(kinds().mutex);
    for (const Kind& kind : kinds().all)
      if (kind.name == name) open = kind.open;
  }
  if (!open)
    throw Error(ErrorKind::argument, "expected a device among " + names + ", got " + std::string(name));
  return open(std::string(name), options);
}

}  // namespace pyturbo
