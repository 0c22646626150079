#include "pyturbo/device.h"

#include <algorithm>

#include "core/kernels.h"
#include "core/launch.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"

namespace pyturbo {
namespace {

// Returns the names that share the longest prefix with `name`, for the message of a failed look-up.
std::string near_names(std::string_view name) {
  size_t best = 0;
  std::string near;
  for (const std::string& known : kernel_registry().names()) {
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

}  // namespace

// Counts a replay before it checks that the device is open. close() does the two in the opposite order, so no
// replay starts after close() has seen a count of zero.
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

bool Device::use(Storage& storage) {
  if (traits_.host_memory == HostMemory::pages && !storage.pages()) return false;
  attach(storage);
  return true;
}

const KernelInfo& Device::kernel(std::string_view name) const {
  if (const KernelInfo* kernel =
          kernel_registry().find(name, checked() ? Variant::checked : Variant::reference))
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

}  // namespace pyturbo
