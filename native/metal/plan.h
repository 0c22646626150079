// The launches of a program as Metal takes them: pipelines, buffers and offsets that were looked up once.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "metal/memory.h"
#include "metal/pipelines.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// Some launches of a program in a row. Values are kept in memory that the GPU reads, so that all arguments of
// a launch are bound by one call. What changes between replays has several copies, one for each replay that
// may be under way. Owner: the program (Recorded::kept), whose replays take turns.
class Plan {
 public:
  // Copies of what changes: more than replays can be under way at the same time.
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

  // Makes the plan of launches whose pipelines exist. Returns null where a launch touches memory that the GPU
  // cannot use in place. Throws as Memory does, and Error{device} for too many threads.
  static std::unique_ptr<Plan> make(std::span<const ReadyLaunch> launches, Pipelines& pipelines,
                                    Memory& memory);

  // Sets what has changed since the last replay. The replay kReplays before must have ended. Returns false
  // where a launch touches memory that the GPU cannot use in place.
  bool update(std::span<const ReadyLaunch> launches, Memory& memory);

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

  Plan() = default;
  void lay_out(std::span<const ReadyLaunch> launches);
  bool find_buffers(const ReadyLaunch& launch, const Command& command, Memory& memory, bool again);
  void set_work(const ReadyLaunch& launch, Command& command);
  void write_values(const ReadyLaunch& launch, const Command& command, uint64_t at);

  std::vector<Command> commands_;
  std::vector<BufferObject> buffers_;  // nil: no argument, or an empty one
  std::vector<NSUInteger> offsets_;
  std::vector<Found> found_;
  std::vector<Length> lengths_;
  std::vector<uint32_t> changing_;   // launches that may differ in each replay
  std::vector<uint64_t> value_at_;   // of each launch, in its part of the values
  std::shared_ptr<Storage> values_;  // those of launches that stay, then copies of the others
  Place values_place_;
  uint64_t lasting_bytes_ = 0, changing_bytes_ = 0;  // of values_
  uint64_t replays_ = 0;
  uint64_t version_ = 0;  // of Memory when buffers were found
};

// What the device keeps for a program: plans by first launch and number of launches.
struct ProgramPlans {
  std::map<std::pair<size_t, size_t>, std::unique_ptr<Plan>> plans;
};

}  // namespace pyturbo::metal
