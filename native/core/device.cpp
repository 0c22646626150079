#include "pyturbo/device.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/bus_error.h"
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

// Claims the loops of a replay, and ends each of them: by finish(), or by cancel() unless the replay came to
// its end.
class LoopEnds {
 public:
  // Throws Error{state} when one of them is part of another replay.
  explicit LoopEnds(std::span<const ReadyLoop> loops) : loops_(loops) {
    for (const ReadyLoop& loop : loops_) {
      if (loop.host->claim().take(this)) continue;
      release();
      throw Error(ErrorKind::state, "run: expected one replay of a host loop at a time, got two");
    }
  }
  ~LoopEnds() {
    while (ended_ < loops_.size()) {
      try {
        loops_[ended_++].host->cancel();
      } catch (...) {  // the failure that ended the replay is the one to report
      }
    }
    release();
  }
  LoopEnds(const LoopEnds&) = delete;
  LoopEnds& operator=(const LoopEnds&) = delete;

  void finish() {
    while (ended_ < loops_.size()) loops_[ended_++].host->finish();
  }

 private:
  void release() {
    for (const ReadyLoop& loop : loops_) loop.host->claim().release(this);
  }

  const std::span<const ReadyLoop> loops_;
  size_t ended_ = 0;
};

}  // namespace

// In a child of fork() what was kept belongs to the parent.
Recorded::~Recorded() {
  if (kept && born_ != fork_count()) new std::shared_ptr<void>(std::move(kept));
}

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

bool Device::use(Storage& storage, uint64_t begin, uint64_t bytes) {
  if (owns(storage)) return true;
  if (!storage.on_host())
    throw Error(ErrorKind::argument, name_ + ": expected memory of this device or of the host, got that of " +
                                         "another device; Buffer.read copies it to the host");
  switch (traits_.host_memory) {
    case HostMemory::any:
      break;
    case HostMemory::pages:
      if (!storage.pages()) return false;
      break;
    case HostMemory::none:
      if (storage.writable() || !storage.pages()) return false;
      break;
  }
  attach(storage, begin, bytes);
  return true;
}

// Attached to a storage under the address of `device`, which stays taken as long as this lives.
struct Device::Copies {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<Storage>> by_range;
  std::shared_ptr<void> device;
};

std::shared_ptr<Storage> Device::constant(const std::shared_ptr<Storage>& storage, uint64_t begin,
                                          uint64_t bytes) {
  if (use(*storage, begin, bytes)) return storage;
  auto copies = std::static_pointer_cast<Copies>(storage->attached(copies_.get()));
  if (!copies) {
    copies = std::make_shared<Copies>();
    copies->device = copies_;
    storage->attach(copies_.get(), copies);
  }
  const std::lock_guard lock(copies->mutex);
  std::weak_ptr<Storage>& known = copies->by_range[{begin, bytes}];
  if (std::shared_ptr<Storage> copy = known.lock()) return copy;
  std::shared_ptr<Storage> copy = allocate(bytes);
  if (files_are_mapped()) watch_bus_errors();
  write(copy->data(), storage->data() + begin, bytes);
  require_readable(storage->data() + begin, bytes);
  known = copy;
  return copy;
}

void Device::set_progress(Progress progress) {
  if (!opened_here()) return;  // a child of fork(), where a thread of the parent may hold the lock for ever
  const std::lock_guard lock(reporting_);
  progress_.swap(progress);
}

void Device::report(Preparation what, uint64_t done, uint64_t total) const {
  const std::lock_guard lock(reporting_);
  if (progress_) progress_(what, done, total);
}

void Device::read(void* to, const void* from, uint64_t bytes) {
  synchronize();
  std::memcpy(to, from, bytes);
}

void Device::write(void* to, const void* from, uint64_t bytes) {
  synchronize();
  std::memcpy(to, from, bytes);
}

void Device::copy(void* to, const void* from, uint64_t bytes) {
  synchronize();
  std::memmove(to, from, bytes);
}

void Device::clear(void* to, uint64_t bytes) {
  synchronize();
  std::memset(to, 0, bytes);
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
  replay({&ready, 1}, {}, true, nullptr);
}

void Device::replay(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops, bool wait,
                    Timeline* timeline, Recorded* program, const std::function<void()>& meanwhile) {
  const Replay counted(*this);
  require_open();
  require_readable(launches.data(), launches.size());
  LoopEnds ends(loops);
  if (timeline) timeline->begin = steady_seconds();
  std::vector<LaunchRun>* const runs = timeline ? &timeline->runs : nullptr;
  if (!loops.empty()) {
    run_loops(launches, loops, timeline, program);
  } else if (program) {
    const bool ahead = meanwhile && !timeline && prepares_ahead();
    run_recorded(*program, 0, launches, wait && !ahead, runs);
    if (ahead) meanwhile();
    if (ahead && wait) synchronize();
  } else {
    run(launches.data(), launches.size(), wait, runs);
  }
  if (timeline) timeline->end = steady_seconds();
  require_readable(launches.data(), launches.size());
  ends.finish();
}

void Device::run_recorded(Recorded&, size_t, std::span<const ReadyLaunch> launches, bool wait,
                          std::vector<LaunchRun>* runs) {
  run(launches.data(), launches.size(), wait, runs);
}

void Device::run_loops(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops,
                       Timeline* timeline, Recorded* program) {
  const auto run_range = [&](size_t begin, size_t end) {
    if (begin == end) return;
    std::vector<LaunchRun>* runs = timeline ? &timeline->runs : nullptr;
    const size_t first = runs ? runs->size() : 0;
    if (program)
      run_recorded(*program, begin, launches.subspan(begin, end - begin), /*wait=*/true, runs);
    else
      run(&launches[begin], end - begin, /*wait=*/true, runs);
    for (size_t i = first; runs && i < runs->size(); ++i) (*runs)[i].launch += begin;
  };
  const auto timed = [&](const ReadyLoop& loop, uint64_t pass, const auto& call) {
    const double begin = timeline ? steady_seconds() : 0;
    const bool result = call();
    if (timeline) timeline->calls.push_back({uint64_t(&loop - loops.data()), pass, begin, steady_seconds()});
    return result;
  };
  size_t done = 0;
  for (const ReadyLoop& loop : loops) {
    run_range(done, loop.ask);
    done = loop.ask;
    if (!loop.host->needed()) continue;
    require_process();
    uint64_t pass = 0;
    timed(loop, pass, [&] { return loop.host->begin(), true; });
    run_range(loop.ask, loop.end);
    done = loop.end;
    for (bool last = false; !last && timed(loop, ++pass, [&] { return loop.host->next(); });) {
      require_process();
      last = *loop.host->missing() == 0;
      run_range(loop.begin, loop.end);
    }
  }
  run_range(done, launches.size());
}

}  // namespace pyturbo
