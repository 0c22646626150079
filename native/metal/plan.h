// The launches of a program as Metal takes them: pipelines, buffers and offsets that were looked up once.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "metal/expected.h"
#include "metal/memory.h"
#include "metal/pipelines.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// Some launches of a program in a row. Values are kept in memory that the GPU reads, so that all arguments of
// a launch are bound by one call. What changes between replays has several copies, one for each replay that
// may be under way. Owner: the program (Recorded::kept), whose replays take turns.
class Plan {
 public:
  // Copies of what changes: more than replays can be under way at the same time, and one that is expected.
  static constexpr size_t kReplays = 8;

  struct Command {
    id<MTLComputePipelineState> pipeline = nil;  // lives as long as Pipelines
    NSUInteger max_threads = 0;                  // of a threadgroup of this pipeline
    MTLSize groups = {}, threads = {};
    uint32_t first = 0, count = 0;                // of its bindings, the n-th of which is [[buffer(n)]]
    uint32_t first_length = 0, length_count = 0;  // of threadgroup memory
    double seconds = 0;                           // estimated
    bool empty = false;                           // it has no threadgroups
    bool waits = false;
  };
  struct Length {
    NSUInteger bytes, index;  // of [[threadgroup(index)]]
  };

  // Makes the plan of launches whose pipelines exist; it is complete after the first update().
  static std::unique_ptr<Plan> make(std::span<const ReadyLaunch> launches, Pipelines& pipelines);

  // Sets what has changed since the last replay. The replay kReplays before must have ended. Returns false
  // where a launch touches memory that the GPU cannot use in place; as long as that stays so, further calls
  // look at nothing else. Throws as Memory does, and Error{device} for too many threads.
  bool update(std::span<const ReadyLaunch> launches, Memory& memory);

  // Notes that what was set last is that of a replay, whose values the next update() leaves alone.
  void commit() { ++replays_; }

  const Command& command(size_t i) const { return commands_[i]; }
  const id<MTLBuffer>* buffers(const Command& command) const { return &buffers_[command.first]; }
  const NSUInteger* offsets(const Command& command) const { return &offsets_[command.first]; }
  std::span<const Length> lengths(const Command& command) const {
    return {lengths_.data() + command.first_length, command.length_count};
  }

 private:
  // Where the buffer of a binding was found.
  struct Found {
    const void* address = nullptr;
    uint64_t bytes = 0;
  };

  // An argument of a launch.
  struct Argument {
    uint32_t launch, index;  // in the plan, and in KernelInfo::arguments
  };

  Plan() = default;
  void lay_out(std::span<const ReadyLaunch> launches);
  void complete(std::span<const ReadyLaunch> launches, Memory& memory);
  bool is_refused(std::span<const ReadyLaunch> launches, Memory& memory);
  bool find_buffers(const ReadyLaunch& launch, uint32_t number, Memory& memory, bool again);
  void set_work(const ReadyLaunch& launch, Command& command);
  void write_values(const ReadyLaunch& launch, const Command& command, uint64_t at);

  std::vector<Command> commands_;
  std::vector<BufferObject> buffers_;  // nil: no argument, or an empty one
  std::vector<NSUInteger> offsets_;
  std::vector<Found> found_;
  std::vector<Length> lengths_;
  std::vector<uint32_t> changing_;   // launches that may differ in each replay
  std::vector<uint64_t> value_at_;   // of each launch, in its part of the values
  std::optional<Argument> refused_;  // that the GPU cannot use in place
  std::shared_ptr<Storage> values_;  // those of launches that stay, then copies of the others
  Place values_place_;
  uint64_t lasting_bytes_ = 0, changing_bytes_ = 0;  // of values_
  uint64_t replays_ = 0;
  std::optional<uint64_t> version_;  // of Memory when all buffers were found
  bool complete_ = false;            // it has the values and the work of launches that stay
};

// What the device keeps for a program. Drops the replay that is expected when it goes.
struct ProgramPlans {
  explicit ProgramPlans(std::shared_ptr<Expected> expected) : expected(std::move(expected)) {}
  ~ProgramPlans() {
    const Pool pool;
    expected->take(number);
  }
  ProgramPlans(const ProgramPlans&) = delete;
  ProgramPlans& operator=(const ProgramPlans&) = delete;

  std::map<std::pair<size_t, size_t>, std::unique_ptr<Plan>> plans;  // by first launch and number of launches
  const std::shared_ptr<Expected> expected;
  uint64_t number = 0;   // of the replay of all launches that is expected; 0: there was none yet
  uint64_t version = 0;  // Recorded::version of that replay
};

}  // namespace pyturbo::metal
