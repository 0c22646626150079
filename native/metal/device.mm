#include "metal/device.h"

#import <Metal/Metal.h>

#include <algorithm>
#include <mutex>
#include <span>

#include "metal/cores.h"
#include "metal/encoder.h"
#include "metal/expected.h"
#include "metal/flight.h"
#include "metal/gates.h"
#include "metal/memory.h"
#include "metal/object.h"
#include "metal/parts.h"
#include "metal/pipelines.h"
#include "metal/plan.h"
#include "metal/residency.h"
#include "metal/staging.h"
#include "metal/timing.h"
#include "pyturbo/error.h"

namespace pyturbo::metal {
namespace {

constexpr size_t kMostInFlight = 4;  // command buffers that run when another replay begins, itself included
static_assert(kMostInFlight + 1 <= Plan::kReplays);  // and the expected one

constexpr uint32_t kAttentionGroups = 4;  // threadgroups of attention that a core should have at once
constexpr uint32_t kProductGroups = 8;    // threadgroups of products with one token that a core runs at once
constexpr uint32_t kUsualCores = 10;      // of a GPU whose number is not known

// Segments of a replay with host loops that are committed at the same time, the running one included. More of
// them hide more of the host's time, but after a miss all but the next one were encoded for nothing.
constexpr size_t kAhead = 3;

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// Returns the newest family of Apple GPUs that the device belongs to.
std::string family(id<MTLDevice> device) {
  for (NSInteger i = MTLGPUFamilyApple9; i >= MTLGPUFamilyApple1; --i)
    if ([device supportsFamily:MTLGPUFamily(i)]) return "Apple" + std::to_string(i - MTLGPUFamilyApple1 + 1);
  return "unknown";
}

// Returns the GPU of this machine, where this process may use it. `name` is what messages call it.
Ref<DeviceObject> open_gpu(const std::string& name) {
  if (fork_count() > 0)
    throw Error(ErrorKind::state, name +
                                      ": Metal cannot be used in a child of fork(): start the process with "
                                      "the 'spawn' method, or use the device cpu");
  const auto device = Ref<DeviceObject>::adopt(MTLCreateSystemDefaultDevice());
  if (!device) throw Error(ErrorKind::device, name + ": this machine has no Metal device");
  if (![device.get() supportsFamily:MTLGPUFamilyApple7])
    throw Error(ErrorKind::device, name + ": expected a GPU of the family Apple7 or newer, got " +
                                       text([device.get() name]) + " of " + family(device.get()));
  return device;
}

// Owner: whoever opened it. Any thread; one lock, held while launches are encoded, not while they run.
class MetalDevice final : public Device {
 public:
  // Called with a pool.
  MetalDevice(const DeviceKind& kind, Ref<DeviceObject> device, Precision precision)
      : Device(kind), precision_(precision), device_(std::move(device)) {
    [device_.get() setShouldMaximizeConcurrentCompilation:YES];
    queue_ = Ref<QueueObject>::adopt([device_.get() newCommandQueue]);
    if (!queue_) throw Error(ErrorKind::device, name() + ": Metal cannot make a command queue");
    pipelines_ = std::make_shared<Pipelines>(device_.get(), precision_);
    residency_ = std::make_shared<Residency>(device_.get(), queue_.get());
    memory_ = std::make_shared<Memory>(device_.get(), residency_, flight_, expected_);
  }

  ~MetalDevice() override { close(); }

  std::vector<std::pair<std::string, std::string>> properties() const override {
    if (closed()) return {};
    const Pool pool;
    const std::lock_guard lock(mutex_);
    if (!memory_) return {};
    id<MTLDevice> device = device_.get();
    const uint32_t cores = core_count(device);
    return {{"name", text([device name])},
            {"family", family(device)},
            {"cores", cores ? std::to_string(cores) : "unknown"},
            {"working set", mebibytes([device recommendedMaxWorkingSetSize])},
            {"longest buffer", mebibytes([device maxBufferLength])},
            {"threadgroup memory", std::to_string([device maxThreadgroupMemoryLength]) + " bytes"},
            {"residency sets", residency_->active() ? "yes" : "no"},
            {"kernels", pipelines_->library().path()},
            {"precision", precision_ == Precision::fast ? "fast" : "default"}};
  }

  std::shared_ptr<Storage> allocate(uint64_t bytes) override {
    const Pool pool;
    std::shared_ptr<Storage> storage = allocate_storage(bytes);
    const std::shared_ptr<Memory> memory = this->memory();
    memory->use(*storage);
    // Creates the buffer now, so that Metal cannot refuse it in the middle of a program.
    Place place;
    if (bytes > 0) memory->find(storage->data(), 1, {"", "allocate", "a buffer"}, place);
    return storage;
  }

  uint64_t longest_argument() override { return memory()->longest(); }

  uint64_t working_set() override { return memory()->working_set(); }

  void prepare(std::span<const ReadyLaunch> launches) override {
    const Pool pool;
    pipelines()->prepare(launches,
                         [&](uint64_t done, uint64_t total) { report(Preparation::kernels, done, total); });
  }

  // Encodes the replay, so that only its commit is left.
  void prepare_replay(std::span<const ReadyLaunch> launches, Recorded& program) override {
    const Pool pool;
    throw_failure();
    ProgramPlans& plans = plans_of(program);
    if (plans.version == program.version && expected_->has(plans.number)) return;
    const Plan* plan = updated_plan(program, 0, launches);
    if (plan) expect(*plan, launches, plans, program.version);
  }

  std::vector<Part> parts(std::span<const ReadyLaunch> launches) const override {
    return parts_of(launches.size(), [&](size_t i) { return estimated_seconds(launches[i]); });
  }

  bool prepares_ahead() const override { return true; }

  void synchronize() override {
    if (!opened_here()) return;
    flight_->wait_all();
    throw_failure();
  }

  uint64_t mark() override {
    require_open();
    return flight_->next() - 1;
  }

  void wait(uint64_t mark) override {
    if (!opened_here()) return;
    flight_->wait(mark);
    throw_failure();
  }

 protected:
  void run(const ReadyLaunch* launches, size_t count, bool wait, std::vector<LaunchRun>* runs) override {
    const Pool pool;
    const std::shared_ptr<Memory> memory = this->memory();
    flight_->wait_for_room(kMostInFlight - 1);
    throw_failure();
    const Staging staging(launches, count, *memory);
    {
      const std::lock_guard lock(mutex_);
      if (runs) {
        wait_if_aliased();
        run_timed(launches, count, staging, *runs);
      } else {
        const std::string label = label_of(launches, count);
        const auto add = [&](Encoder& encoder, size_t i) { encoder.add(launches[i]); };
        const auto seconds = [&](size_t i) { return estimated_seconds(launches[i]); };
        commit({0, count, label, staging}, seconds, add);
      }
    }
    if (wait || !staging.empty()) flight_->wait_all();
    throw_failure();
    staging.copy_out();
  }

  void run_recorded(Recorded& program, size_t first, std::span<const ReadyLaunch> launches, bool wait,
                    std::vector<LaunchRun>* runs) override {
    const Pool pool;
    if (runs) {
      run(launches.data(), launches.size(), wait, runs);
      return;
    }
    flight_->wait_for_room(kMostInFlight - 1);
    throw_failure();
    if (!commit_expected(program, launches.size())) {
      Plan* plan = updated_plan(program, first, launches);
      if (!plan) {
        run(launches.data(), launches.size(), wait, nullptr);
        return;
      }
      commit(*plan, launches);
    }
    if (wait) flight_->wait_all();
    throw_failure();
  }

  // Commits launches ahead of the GPU, which stops at a miss by itself (Gates). Waits at every ask instead
  // where launches are timed, where memory is copied, or where Metal cannot order command buffers.
  void run_loops(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops, Timeline* timeline,
                 Recorded* program) override {
    const Pool pool;
    const std::shared_ptr<Memory> memory = this->memory();
    flight_->wait_for_room(kMostInFlight - 1);
    throw_failure();
    Plan* plan = timeline || !program ? nullptr : updated_plan(*program, 0, launches);
    if (!plan || memory->aliased() || !counts_known(loops, *memory)) {
      Device::run_loops(launches, loops, timeline, program);
      return;
    }
    plan->commit();
    const GateMemory gate_memory(*this, Gates::bytes(launches.size()));
    Gates gates(launches, loops, kernel("gate"), gate_memory.storage());
    Place groups;
    memory->find(gates.groups(), sizeof(uint32_t), {"", "gate", "groups"}, groups);
    const LoopReplay replay{launches, loops, *plan, gates, groups};
    for (size_t start = 0, loop = 0; loop < loops.size() || start < launches.size(); ++loop) {
      gates.open(loop);
      loop = run_to_miss(replay, start, loop);
      if (loop == loops.size()) return;
      start = run_passes(replay, loop);
    }
  }

  void attach(Storage& storage, uint64_t, uint64_t) override {
    const Pool pool;
    memory()->use(storage);
  }

  void release() override {
    const Pool pool;
    const std::lock_guard lock(mutex_);
    flight_->wait_all();
    expected_->drop_all();
    gate_storage_.clear();
    pipelines_->save();
    pipelines_.reset();
    memory_->close();
    memory_.reset();
    residency_.reset();
    queue_ = {};
    device_ = {};
  }

 private:
  std::shared_ptr<Memory> memory() {
    require_open();
    const std::lock_guard lock(mutex_);
    if (!memory_) throw Error(ErrorKind::state, name() + ": the device is closed");
    return memory_;
  }

  std::shared_ptr<Pipelines> pipelines() {
    require_open();
    const std::lock_guard lock(mutex_);
    if (!pipelines_) throw Error(ErrorKind::state, name() + ": the device is closed");
    return pipelines_;
  }

  ProgramPlans& plans_of(Recorded& program) {
    if (!program.kept) program.kept = std::make_shared<ProgramPlans>(expected_);
    return *static_cast<ProgramPlans*>(program.kept.get());
  }

  // Returns the plan of launches of a program, with what differs in this replay. Returns null where they need
  // copies of memory.
  Plan* updated_plan(Recorded& program, size_t first, std::span<const ReadyLaunch> launches) {
    const std::shared_ptr<Memory> memory = this->memory();
    std::unique_ptr<Plan>& plan = plans_of(program).plans[{first, launches.size()}];
    if (!plan) {
      prepare(launches);
      plan = Plan::make(launches, *pipelines());
    }
    return plan->update(launches, *memory) ? plan.get() : nullptr;
  }

  Ref<CommandsObject> new_commands(const std::string& label) {
    auto commands = Ref<CommandsObject>::retain([queue_.get() commandBufferWithUnretainedReferences]);
    if (!commands) throw Error(ErrorKind::device, name() + ": Metal cannot make a command buffer");
    [commands.get() setLabel:string(label)];
    return commands;
  }

  id<MTLComputeCommandEncoder> made(id<MTLComputeCommandEncoder> encoder) const {
    if (!encoder) throw Error(ErrorKind::device, name() + ": Metal cannot make a compute pass");
    return encoder;
  }

  // Commits a command buffer and returns its number.
  uint64_t submit(id<MTLCommandBuffer> commands) {
    residency_->used();
    return flight_->commit(commands);
  }

  // Waits until nothing runs where command buffers may share memory that Metal does not know to be shared.
  void wait_if_aliased() {
    if (memory_->aliased()) flight_->wait_all();
  }

  struct Launches {
    size_t begin, end;
    const std::string& label;
    const Staging& staging;
  };

  // Commits launches, in several command buffers where one would hold the GPU for long. The GPU begins with
  // the first while the others are encoded. `seconds(i)` is the estimate of launch i, `add(encoder, i)`
  // encodes it; where that fails, the parts before it run. Returns the number of the last command buffer.
  template <typename Seconds, typename Add>
  uint64_t commit(const Launches& launches, const Seconds& seconds, const Add& add) {
    uint64_t number = 0;
    for (Part part{0, launches.begin, 0}; number == 0 || part.end < launches.end;) {
      part = next_part(part.end, launches.end, part.end == 0, seconds);
      wait_if_aliased();
      const Pool pool;
      number = submit(encoded(part, launches, add).get());
    }
    return number;
  }

  // Returns a command buffer with some of the launches.
  template <typename Add>
  Ref<CommandsObject> encoded(const Part& part, const Launches& launches, const Add& add) {
    auto commands = new_commands(launches.label);
    Encoder encoder(made([commands.get() computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent]),
                    *pipelines_, *memory_, launches.staging);
    for (size_t i = part.begin; i < part.end; ++i) add(encoder, i);
    return commands;
  }

  void commit(Plan& plan, std::span<const ReadyLaunch> launches) {
    const std::lock_guard lock(mutex_);
    plan.commit();
    const std::string label = label_of(launches.data(), launches.size());
    const Staging no_copies(nullptr, 0, *memory_);
    const auto seconds = [&](size_t i) { return plan.command(i).seconds; };
    commit({0, launches.size(), label, no_copies}, seconds,
           [&](Encoder& encoder, size_t i) { encoder.add(plan, i); });
  }

  // Encodes a replay that has been set in the plan of all launches, unless it takes too many command buffers,
  // or Metal could not order them.
  void expect(const Plan& plan, std::span<const ReadyLaunch> launches, ProgramPlans& plans,
              uint64_t version) {
    const std::lock_guard lock(mutex_);
    if (!memory_) throw Error(ErrorKind::state, name() + ": the device is closed");
    const std::vector<Part> parts =
        parts_of(launches.size(), [&](size_t i) { return plan.command(i).seconds; });
    if (parts.empty() || parts.size() > Expected::kMost || memory_->aliased()) return;
    expected_->take(plans.number);
    const std::string label = label_of(launches.data(), launches.size());
    const Staging no_copies(nullptr, 0, *memory_);
    Expected::Replay replay;
    for (const Part& part : parts) {
      const Pool pool;
      replay.push_back(encoded(part, {0, launches.size(), label, no_copies},
                               [&](Encoder& encoder, size_t i) { encoder.add(plan, i); }));
    }
    plans.number = expected_->keep(std::move(replay));
    plans.version = version;
  }

  // Commits a replay of all launches of a program if it is the one that was expected, which is dropped
  // otherwise. Returns whether it was.
  bool commit_expected(Recorded& program, size_t launches) {
    ProgramPlans& plans = plans_of(program);
    const std::lock_guard lock(mutex_);
    const Expected::Replay replay = expected_->take(plans.number);
    if (replay.empty() || plans.version != program.version) return false;
    plans.plans.at({0, launches})->commit();
    for (const Ref<CommandsObject>& commands : replay) {
      wait_if_aliased();
      submit(commands.get());
    }
    return true;
  }

  // Memory for the gates of one replay. It is used again once all that was committed has finished.
  class GateMemory {
   public:
    GateMemory(MetalDevice& device, uint64_t bytes) : device_(device) {
      {
        const std::lock_guard lock(device.mutex_);
        if (!device.gate_storage_.empty()) {
          storage_ = std::move(device.gate_storage_.back());
          device.gate_storage_.pop_back();
        }
      }
      if (!storage_ || storage_->bytes() < bytes) storage_ = device.allocate(bytes);
    }
    ~GateMemory() {
      device_.flight_->wait_all();
      const std::lock_guard lock(device_.mutex_);
      device_.gate_storage_.push_back(storage_);
    }
    GateMemory(const GateMemory&) = delete;
    GateMemory& operator=(const GateMemory&) = delete;

    const std::shared_ptr<Storage>& storage() const { return storage_; }

   private:
    MetalDevice& device_;
    std::shared_ptr<Storage> storage_;
  };

  struct LoopReplay {
    std::span<const ReadyLaunch> launches;
    std::span<const ReadyLoop> loops;
    const Plan& plan;
    Gates& gates;
    Place groups;  // of the first launch; the others follow
  };

  // Returns whether the GPU can read all counts of what is missing.
  static bool counts_known(std::span<const ReadyLoop> loops, Memory& memory) {
    return std::all_of(loops.begin(), loops.end(), [&](const ReadyLoop& loop) {
      Place place;
      return memory.find(loop.host->missing(), sizeof(uint32_t), {"", "gate", "missing"}, place);
    });
  }

  // Commits one segment after the other, from launch `start` on: segment i ends before the ask of loop i, the
  // last one at the end. Returns the first loop from `first` on that misses something, whose first pass may
  // still be running, or the number of loops when all launches are done.
  size_t run_to_miss(const LoopReplay& replay, size_t start, size_t first) {
    const std::span<const ReadyLoop> loops = replay.loops;
    std::vector<uint64_t> numbers;  // of the command buffers
    for (size_t loop = first;; ++loop) {
      for (size_t next = first + numbers.size(); next <= loops.size() && next < loop + kAhead; ++next) {
        const size_t begin = next == first ? start : loops[next - 1].ask;
        const size_t end = next < loops.size() ? loops[next].ask : replay.launches.size();
        numbers.push_back(commit_segment(replay, begin, end, /*gated=*/next > first, next));
      }
      flight_->wait(numbers[loop - first]);
      throw_failure();
      require_process();
      if (loop == loops.size() || *loops[loop].host->missing() != 0) return loop;
    }
  }

  // Lets the host bring what a loop misses, and runs its passes. Returns the launch at which the replay goes
  // on: behind the passes, or at the last pass if the host has marked it.
  size_t run_passes(const LoopReplay& replay, size_t index) {
    const ReadyLoop& loop = replay.loops[index];
    loop.host->begin();
    synchronize();
    while (loop.host->next()) {
      require_process();
      if (*loop.host->missing() == 0) return loop.begin;
      if (loop.begin == loop.end) continue;
      commit_segment(replay, loop.begin, loop.end, /*gated=*/false, replay.loops.size());
      synchronize();
    }
    return loop.end;
  }

  // Commits launches in command buffers of their own, and the gate of a loop at the end of the last one if
  // there is such a loop. Returns its number.
  uint64_t commit_segment(const LoopReplay& replay, size_t begin, size_t end, bool gated, size_t loop) {
    const Pool pool;
    const std::lock_guard lock(mutex_);
    const std::string label = label_of(replay.launches.data(), replay.launches.size());
    const Staging no_copies(nullptr, 0, *memory_);
    const bool closes = loop < replay.loops.size();
    const auto seconds = [&](size_t i) { return i < end ? replay.plan.command(i).seconds : 0; };
    const auto add = [&](Encoder& encoder, size_t i) {
      if (i == end) return encoder.add(replay.gates.launch(loop));
      const uint64_t offset = replay.groups.offset + i * sizeof(MTLDispatchThreadgroupsIndirectArguments);
      encoder.add(replay.plan, i, gated ? Place{replay.groups.buffer, offset} : Place{});
    };
    return commit({begin, end + (closes ? 1 : 0), label, no_copies}, seconds, add);
  }

  // Runs one pass for each launch, with timestamps around it. Each launch gets its own command buffer if
  // there are no timestamps, or if passes of one command buffer might overlap although they use the same
  // memory. Without timestamps, a launch took the time that its command buffer took, and ended when the host
  // learned of that.
  void run_timed(const ReadyLaunch* launches, size_t count, const Staging& staging,
                 std::vector<LaunchRun>& runs) {
    for (size_t begin = 0; begin < count;) {
      const Pool pool;
      const PassTimer timer(device_.get());
      const bool together = timer && !memory_->aliased();
      const size_t end = together ? std::min(count, begin + PassTimer::kPasses) : begin + 1;
      const auto commands = new_commands(label_of(launches + begin, end - begin));
      for (size_t i = begin; i < end; ++i) {
        id<MTLComputeCommandEncoder> pass =
            timer ? [commands.get() computeCommandEncoderWithDescriptor:timer.pass(i - begin)]
                  : [commands.get() computeCommandEncoder];
        Encoder(made(pass), *pipelines_, *memory_, staging).add(launches[i]);
      }
      const double committed = steady_seconds();
      submit(commands.get());
      flight_->wait_all();
      if (timer) {
        for (size_t i = begin; const PassTime& time : timer.times(end - begin))
          runs.push_back({i++, time.begin, time.end});
      } else {
        const double seconds = [commands.get() GPUEndTime] - [commands.get() GPUStartTime];
        const double ended = steady_seconds();
        runs.push_back({begin, std::max(committed, ended - seconds), ended});
      }
      begin = end;
    }
  }

  // Returns the label of a command buffer, for messages about its failure.
  static std::string label_of(const ReadyLaunch* launches, size_t count) {
    if (count == 1) return launches[0].kernel->name;
    return "program of " + std::to_string(count) + " launches";
  }

  // A failed command buffer leaves memory in an unknown state, so nothing runs after it.
  void throw_failure() const {
    const std::string failure = flight_->failure();
    if (!failure.empty())
      throw Error(ErrorKind::device, name() + ": " + failure + "; the device must be opened again");
  }

  const Precision precision_;
  Ref<DeviceObject> device_;
  Ref<QueueObject> queue_;
  std::shared_ptr<Pipelines> pipelines_;
  std::shared_ptr<Residency> residency_;
  std::shared_ptr<Memory> memory_;
  const std::shared_ptr<Flight> flight_ = std::make_shared<Flight>();
  const std::shared_ptr<Expected> expected_ = std::make_shared<Expected>();
  std::vector<std::shared_ptr<Storage>> gate_storage_;  // not in use
  mutable std::mutex mutex_;  // one thread encodes at a time; guards the objects that close() releases
};

std::unique_ptr<Device> open(const DeviceKind& kind, const DeviceOptions& options) {
  if (options.checked)
    throw Error(ErrorKind::argument, kind.name + ": expected no checker, which is part of cpu:reference");
  const Pool pool;
  Ref<DeviceObject> device = open_gpu(kind.name);
  DeviceKind own = kind;
  if (const uint32_t cores = core_count(device.get())) {
    own.traits.attention_groups = kAttentionGroups * cores;
    own.traits.product_groups = kProductGroups * cores;
  }
  return std::make_unique<MetalDevice>(own, std::move(device), options.precision);
}

// Returns whether this machine has a GPU that can run the kernels: family Apple7 (M1) or newer. A child of
// fork() must not ask Metal: there the device stays in the list, and opening it says why it cannot be used.
bool available() {
  if (fork_count() > 0) return true;
  const Pool pool;
  const auto device = Ref<DeviceObject>::adopt(MTLCreateSystemDefaultDevice());
  return device && [device.get() supportsFamily:MTLGPUFamilyApple7];
}

}  // namespace

// Reasoned, not measured: each core has some threadgroups of attention, so an opened device has as many as
// its GPU needs; products of matrices pay once a chunk of 32 tokens is full, while each step of the recurrent
// delta net waits for its sums. Each pass of a host loop takes a round trip: a token, which needs about 8
// experts, has one, and a prompt some.
DeviceKind kind() {
  return {.name = "metal",
          .rank = Rank::gpu,
          .traits = {.chunk = 512,
                     .single = 1,
                     .attention_blocks = 128,
                     .attention_groups = kAttentionGroups * kUsualCores,
                     .product_groups = kProductGroups * kUsualCores,
                     .chunkwise_tokens = 32,
                     .pass_experts = 16,
                     .bucket_tokens = 64,
                     .few_tokens = 0,
                     .top_logits = 64,
                     .fused = true,
                     .host_memory = HostMemory::pages},
          .open = open,
          .available = available};
}

}  // namespace pyturbo::metal
