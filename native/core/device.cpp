#include "pyturbo/device.h"

#include <algorithm>
#include <mutex>

#include "core/devices.h"
#include "core/launch.h"
#include "core/registry.h"
#include "cpu/device.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"
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

// Never destroyed: threads that are not ours may run until the very end of the process.
struct Kinds {
  std::mutex mutex;
  std::vector<Kind> all = built_in();

  Kinds() { hold_across_forks(mutex); }
};

Kinds& kinds() {
  static Kinds& instance = *new Kinds;
  return instance;
}

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

// Counts a replay before it looks whether the device is open, as close() does in the other order: so none
// begins after close() has seen that none is at work.
class Device::Replay {
 public:
  explicit Replay(Device& device) : device_(device) { device_.replays_.fetch_add(1); }
  ~Replay() {
    if (device_.replays_.fetch_sub(1) == 1 && device_.state_.load() != State::open)
      device_.replays_.notify_all();
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 private:
  Device& device_;
};

void Device::require_open() const {
  if (!opened_here())
    throw Error(ErrorKind::state, name_ +
                                      ": the device was made before fork(): load the model in the child "
                                      "process, or start that with the 'spawn' method");
  if (closed()) throw Error(ErrorKind::state, name_ + ": the device is closed");
}

void Device::close() {
  if (!opened_here()) return;
  State before = State::open;
  if (!state_.compare_exchange_strong(before, State::closing)) {
    state_.wait(State::closing);
    return;
  }
  struct Closed {
    std::atomic<State>& state;
    ~Closed() {
      state.store(State::closed);
      state.notify_all();
    }
  } const closed{state_};
  for (uint32_t count = replays_.load(); count > 0; count = replays_.load()) replays_.wait(count);
  release();
}

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
  const Replay counted(*this);
  require_open();
  require_readable(launches, count);
  run(launches, count, wait, seconds);
  require_readable(launches, count);
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
  if (process_ends()) throw Error(ErrorKind::state, std::string(name) + ": the process is ending");
  const std::shared_ptr<Device> device(open(std::string(name), options).release(), [](Device* opened) {
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
