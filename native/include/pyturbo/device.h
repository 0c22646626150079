// A device runs launches. See docs/adding-a-device.md for its implementations.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pyturbo/device_kind.h"
#include "pyturbo/error.h"
#include "pyturbo/host_loop.h"
#include "pyturbo/kernel.h"
#include "pyturbo/process.h"
#include "pyturbo/storage.h"
#include "pyturbo/timeline.h"

namespace pyturbo {

// A launch that check_launch has completed.
struct ReadyLaunch {
  const KernelInfo* kernel;
  const Arguments* arguments;
  Dispatch dispatch;
  bool waits;            // must wait for the launches before it
  const char* label;     // its place in a model, for messages
  bool changes = false;  // may differ from the same launch in another replay of its program
  uint64_t version = 0;  // Recorded::version when it differed last
};

// A host loop among the launches of a replay: those from `ask` on run once while the host works, those from
// `begin` to `end` run in every pass.
struct ReadyLoop {
  size_t ask, begin, end;  // indices of launches, in this order
  HostLoop* host;
};

// What launches may have to wait for: kernels being compiled, and weights being copied, which are counted in
// bytes.
enum class Preparation : uint8_t { kernels, weights };

// Launches of a replay in a row that a device gives to its GPU at once, and the seconds that they may take.
struct Part {
  size_t begin, end;
  double seconds;  // 0: unknown
};

// Called with how much is done, and the total. From any thread, but one at a time.
using Progress = std::function<void(Preparation what, uint64_t done, uint64_t total)>;

// Bytes of a device's own memory.
struct DeviceMemory {
  uint64_t total, free;
};

// A program as its device sees it. Owner: the program itself. Its replays take turns.
class Recorded {
 public:
  virtual ~Recorded();

  // Returns for each launch the indices of earlier ones that it must follow, because one of the two writes
  // memory of the other. Those that a listed launch follows anyway are left out. Barriers are not listed.
  virtual std::vector<std::vector<uint32_t>> dependencies() const = 0;

  // What the device has made of the launches. Dropped when one is added; never destroyed in a child of
  // fork().
  std::shared_ptr<void> kept;

  // The number of the values and addresses that the launches have: others have a larger one.
  uint64_t version = 0;

 private:
  const uint32_t born_ = fork_count();
};

// Owner: shared by the Python Device and every Kernel made from it. All methods may be called from any
// thread and need no Python. A device belongs to the process that opened it: a child of fork() is refused
// before any lock is taken, and drops the device without destroying it.
class Device : public ClosedAtEnd {
 public:
  explicit Device(const DeviceKind& kind) : name_(kind.name), traits_(kind.traits) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  const Traits& traits() const { return traits_; }
  // A closed device refuses all work. So does one that was opened before a fork.
  bool closed() const { return state_.load() != State::open || !opened_here(); }
  bool opened_here() const { return born_ == fork_count(); }
  // Throws Error{state} when it is closed.
  void require_open() const;
  // Waits for running replays and releases the device's resources.
  void close() override;

  // Properties shown to users, as name and value.
  virtual std::vector<std::pair<std::string, std::string>> properties() const { return {}; }

  // Returns the kernel in the variant this device runs. Throws Error{argument} with similar names.
  const KernelInfo& kernel(std::string_view name) const;

  // Returns its own memory; nothing for a device that uses that of the host.
  virtual std::optional<DeviceMemory> own_memory() { return std::nullopt; }

  // Returns the most bytes of host memory that kernels should use together; 0: there is no such limit. Throws
  // Error{state} when it is closed.
  virtual uint64_t working_set() {
    require_open();
    return 0;
  }

  // Allocates zeroed memory for kernels. A device with memory of its own attaches itself to it.
  virtual std::shared_ptr<Storage> allocate(uint64_t bytes) = 0;
  // Allocates zeroed memory that kernels and the host can both touch.
  virtual std::shared_ptr<Storage> allocate_shared(uint64_t bytes) { return allocate(bytes); }

  // Copy bytes between host memory and memory of this device, or within that, after all work begun so far and
  // before all work begun later. read() waits for its copy; write() may return before, but has read `from`.
  virtual void read(void* to, const void* from, uint64_t bytes);
  virtual void write(void* to, const void* from, uint64_t bytes);
  virtual void copy(void* to, const void* from, uint64_t bytes);
  virtual void clear(void* to, uint64_t bytes);

  // The device of memory that the host cannot touch, as DLPack names it: a type and a number.
  virtual std::pair<int32_t, int32_t> dlpack_device() const { return {1, 0}; }

  // Returns the most bytes that an argument of a launch can have. Throws Error{state} when it is closed.
  virtual uint64_t longest_argument() {
    require_open();
    return UINT64_MAX;
  }

  // Notes that launches will touch `bytes` of a storage from `begin` on. Returns false where the device
  // cannot use them in place (Traits::host_memory) and would copy them for every launch. Throws
  // Error{argument} for memory that only another device can touch.
  bool use(Storage& storage, uint64_t begin, uint64_t bytes);

  // Returns memory of these values, which do not change: the storage itself where use() allows that, else a
  // copy of the bytes from `begin` on, which further calls return for as long as somebody holds it.
  std::shared_ptr<Storage> constant(const std::shared_ptr<Storage>& storage, uint64_t begin, uint64_t bytes);

  // Calls `progress` during preparations from now on; null: nobody is told. It must not use the device.
  void set_progress(Progress progress);

  // Prepares launches, which their first run would do. Only kernels and constants of them need be complete.
  virtual void prepare(std::span<const ReadyLaunch>) { require_open(); }

  // Prepares a replay of all launches of a program without loops, which need not wait for it. Replays under
  // way are not affected.
  virtual void prepare_replay(std::span<const ReadyLaunch> launches, Recorded&) { prepare(launches); }

  // Returns how a replay of these launches is divided, but for its host loops.
  virtual std::vector<Part> parts(std::span<const ReadyLaunch> launches) const {
    return {{0, launches.size(), 0}};
  }

  // Whether prepare_replay() saves time where it is called while the device is at work.
  virtual bool prepares_ahead() const { return false; }

  // Checks a launch (core/launch.h), completes it where `dispatch` is null, runs it and waits for it.
  void launch(const KernelInfo& kernel, const Arguments& arguments, const Dispatch* dispatch);

  // Runs launches in order; launches without `waits` may overlap earlier ones. Without `wait`, and without
  // loops, it may return before they have finished, and their memory must stay valid until synchronize().
  // `timeline`, if given, is empty and receives when each of them ran; it then waits. Loops are in order and
  // do not overlap. Throws Error{state} before the first launch when a loop is part of another replay.
  // `program`, if given, is what the launches belong to, all of them. `meanwhile`, if given, is called while
  // the device is at work, if it prepares ahead, without a timeline or loops; it throws nothing.
  void replay(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops, bool wait,
              Timeline* timeline, Recorded* program = nullptr,
              const std::function<void()>& meanwhile = nullptr);

  // Waits for all work begun in this process and throws its first failure.
  virtual void synchronize() {}

  // Marks the end of the work begun so far.
  virtual uint64_t mark() {
    require_open();
    return 0;
  }

  // Waits for the work before a mark, perhaps for more, and throws the first failure.
  virtual void wait([[maybe_unused]] uint64_t mark) { synchronize(); }

 protected:
  virtual bool checked() const { return false; }
  // Adds to `runs`, if given, one execution of each launch, with its index among these, and waits for them.
  virtual void run(const ReadyLaunch* launches, size_t count, bool wait, std::vector<LaunchRun>* runs) = 0;
  // Runs launches of a program, from number `first` on, as run() does. A device that keeps what it made of
  // them overrides this one.
  virtual void run_recorded(Recorded& program, size_t first, std::span<const ReadyLaunch> launches, bool wait,
                            std::vector<LaunchRun>* runs);
  // Runs launches with host loops among them and waits for them. This one waits at every ask.
  virtual void run_loops(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops,
                         Timeline* timeline, Recorded* program);
  // Throws Error{state} when the process is ending.
  void require_process() const {
    if (process_ends()) throw Error(ErrorKind::state, name_ + ": the process is ending");
  }
  virtual void release() {}
  // Tells whoever asked about a preparation.
  void report(Preparation what, uint64_t done, uint64_t total) const;
  // Prepares memory that kernels can use in place, or of which they can use a copy that is made once: a
  // device with memory of its own is given read-only pages, of which launches will touch these bytes.
  virtual void attach(Storage& storage, uint64_t begin, uint64_t bytes) {
    (void)storage, (void)begin, (void)bytes;
  }
  // Whether it is memory of this device: a device with memory of its own keeps track of what it allocates.
  virtual bool owns(const Storage&) const { return false; }

 private:
  enum class State : uint8_t { open, closing, closed };
  class Replay;   // counts itself in replays_
  struct Copies;  // of the constants in one storage

  const std::string name_;
  const Traits traits_;
  const uint32_t born_ = fork_count();
  const std::shared_ptr<char> copies_ = std::make_shared<char>();  // its address stands for this device
  std::atomic<State> state_{State::open};
  std::atomic<uint32_t> replays_{0};  // now running
  mutable std::mutex reporting_;      // guards progress_, also while that is called
  Progress progress_;
};

}  // namespace pyturbo
