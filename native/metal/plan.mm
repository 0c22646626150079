#include "metal/plan.h"

#include <algorithm>
#include <cstring>

#include "metal/geometry.h"
#include "metal/parts.h"

namespace pyturbo::metal {
namespace {

constexpr uint64_t kValueAlignment = 16;  // as in Program; any value may begin there

uint64_t room(uint32_t size) { return (size + kValueAlignment - 1) / kValueAlignment * kValueAlignment; }

// Returns whether an argument has memory: it may be disabled by a function constant, or be empty.
bool bound(const Arguments& arguments, const ArgumentInfo& info) {
  return arguments.buffers[info.index] && arguments.bytes[info.index] > 0;
}

// Finds where an argument is, if it has memory. Returns false where the GPU cannot use that in place.
bool find_place(const ReadyLaunch& launch, const ArgumentInfo& info, Memory& memory, Place& place) {
  const Arguments& arguments = *launch.arguments;
  return !bound(arguments, info) || memory.find(arguments.buffers[info.index], arguments.bytes[info.index],
                                                {launch.label, launch.kernel->name, info.name}, place);
}

}  // namespace

std::unique_ptr<Plan> Plan::make(std::span<const ReadyLaunch> launches, Pipelines& pipelines) {
  std::unique_ptr<Plan> plan(new Plan);
  for (const ReadyLaunch& launch : launches) {
    id<MTLComputePipelineState> pipeline = pipelines.get(*launch.kernel, launch.arguments->constants);
    plan->commands_.push_back({.pipeline = pipeline,
                               .max_threads = [pipeline maxTotalThreadsPerThreadgroup],
                               .waits = launch.waits});
  }
  plan->lay_out(launches);
  return plan;
}

// Gives each launch its bindings and its part of the values.
void Plan::lay_out(std::span<const ReadyLaunch> launches) {
  for (uint32_t i = 0; i < launches.size(); ++i) {
    const KernelInfo& kernel = *launches[i].kernel;
    uint64_t& used = launches[i].changes ? changing_bytes_ : lasting_bytes_;
    Command& command = commands_[i];
    command.first = uint32_t(buffers_.size());
    command.first_length = uint32_t(lengths_.size());
    value_at_.push_back(used);
    if (launches[i].changes) changing_.push_back(i);
    for (uint32_t j = 0; j < kernel.argument_count; ++j) {
      const ArgumentInfo& info = kernel.arguments[j];
      if (info.kind == ArgumentKind::threadgroup) {
        lengths_.push_back({0, info.index});
        continue;
      }
      if (info.kind == ArgumentKind::value) used += room(info.size);
      command.count = std::max(command.count, info.index + 1);
    }
    command.length_count = uint32_t(lengths_.size()) - command.first_length;
    buffers_.resize(buffers_.size() + command.count, nil);
    offsets_.resize(buffers_.size());
    found_.resize(buffers_.size());
  }
}

bool Plan::update(std::span<const ReadyLaunch> launches, Memory& memory) {
  if (is_refused(launches, memory)) return false;
  const uint64_t version = memory.version();
  if (version_ != version) {
    for (uint32_t i = 0; i < launches.size(); ++i)
      if (!find_buffers(launches[i], i, memory, /*again=*/true)) return false;
    version_ = version;
  }
  if (!complete_) complete(launches, memory);
  const uint64_t copy = lasting_bytes_ + replays_ % kReplays * changing_bytes_;
  for (const uint32_t i : changing_) {
    if (!find_buffers(launches[i], i, memory, /*again=*/false)) return false;
    set_work(launches[i], commands_[i]);
    write_values(launches[i], commands_[i], copy + value_at_[i]);
  }
  return true;
}

// Sets what is the same in all replays.
void Plan::complete(std::span<const ReadyLaunch> launches, Memory& memory) {
  const uint64_t bytes = lasting_bytes_ + kReplays * changing_bytes_;
  if (bytes > 0) {
    values_ = allocate_storage(bytes);
    memory.use(*values_);
    memory.find(values_->data(), bytes, {"", "program", "values"}, values_place_);
  }
  for (size_t i = 0; i < launches.size(); ++i) {
    if (launches[i].changes) continue;
    set_work(launches[i], commands_[i]);
    write_values(launches[i], commands_[i], value_at_[i]);
  }
  complete_ = true;
}

// Returns whether the argument that was refused last still is.
bool Plan::is_refused(std::span<const ReadyLaunch> launches, Memory& memory) {
  if (!refused_) return false;
  const ReadyLaunch& launch = launches[refused_->launch];
  Place place;
  if (!find_place(launch, launch.kernel->arguments[refused_->index], memory, place)) return true;
  refused_.reset();
  return false;
}

// Finds the buffers of a launch; unless `again`, those whose memory is another one than before.
bool Plan::find_buffers(const ReadyLaunch& launch, uint32_t number, Memory& memory, bool again) {
  const KernelInfo& kernel = *launch.kernel;
  const Arguments& arguments = *launch.arguments;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& info = kernel.arguments[i];
    if (info.kind != ArgumentKind::buffer) continue;
    const uint32_t at = commands_[number].first + info.index;
    const Found wanted{arguments.buffers[info.index], arguments.bytes[info.index]};
    if (!again && wanted.address == found_[at].address && wanted.bytes == found_[at].bytes) continue;
    Place place;
    if (!find_place(launch, info, memory, place)) {
      refused_ = {number, i};
      return false;
    }
    buffers_[at] = place.buffer;
    offsets_[at] = place.offset;
    found_[at] = wanted;
  }
  return true;
}

void Plan::set_work(const ReadyLaunch& launch, Command& command) {
  require_threads(launch, command.max_threads);
  command.seconds = estimated_seconds(launch);
  command.empty = launch.dispatch.groups.count() == 0;
  command.groups = metal_size(launch.dispatch.groups);
  command.threads = metal_size(launch.dispatch.threads);
  for (uint32_t i = 0; i < command.length_count; ++i) {
    Length& length = lengths_[command.first_length + i];
    length.bytes = threadgroup_length(launch.arguments->threadgroup_bytes[length.index]);
  }
}

// Writes the values of a launch from byte `at` of all values on, and binds them.
void Plan::write_values(const ReadyLaunch& launch, const Command& command, uint64_t at) {
  const KernelInfo& kernel = *launch.kernel;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& info = kernel.arguments[i];
    if (info.kind != ArgumentKind::value) continue;
    if (bound(*launch.arguments, info)) {
      std::memcpy(values_->data() + at, launch.arguments->buffers[info.index], info.size);
      buffers_[command.first + info.index] = values_place_.buffer;
      offsets_[command.first + info.index] = values_place_.offset + at;
    }
    at += room(info.size);
  }
}

}  // namespace pyturbo::metal
