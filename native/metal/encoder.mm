#include "metal/encoder.h"

#include "metal/geometry.h"

namespace pyturbo::metal {

void Encoder::add(const ReadyLaunch& launch) {
  waits_ |= launch.waits;
  if (launch.dispatch.groups.count() == 0) return;
  id<MTLComputePipelineState> pipeline = pipelines_.get(*launch.kernel, launch.arguments->constants);
  require_threads(launch, [pipeline maxTotalThreadsPerThreadgroup]);
  set_pipeline(pipeline);
  bind(launch);
  wait_if_needed();
  [encoder_ dispatchThreadgroups:metal_size(launch.dispatch.groups)
           threadsPerThreadgroup:metal_size(launch.dispatch.threads)];
}

void Encoder::add(const Plan& plan, size_t i, const Place& groups) {
  const Plan::Command& command = plan.command(i);
  waits_ |= command.waits;
  if (command.empty) return;
  set_pipeline(command.pipeline);
  if (command.count > 0)
    [encoder_ setBuffers:plan.buffers(command)
                 offsets:plan.offsets(command)
               withRange:NSMakeRange(0, command.count)];
  for (const Plan::Length& length : plan.lengths(command))
    [encoder_ setThreadgroupMemoryLength:length.bytes atIndex:length.index];
  wait_if_needed();
  if (groups.buffer)
    [encoder_ dispatchThreadgroupsWithIndirectBuffer:groups.buffer
                                indirectBufferOffset:groups.offset
                               threadsPerThreadgroup:command.threads];
  else
    [encoder_ dispatchThreadgroups:command.groups threadsPerThreadgroup:command.threads];
}

void Encoder::set_pipeline(id<MTLComputePipelineState> pipeline) {
  if (pipeline != pipeline_) [encoder_ setComputePipelineState:pipeline];
  pipeline_ = pipeline;
}

// Adds the barrier that the next dispatch needs.
void Encoder::wait_if_needed() {
  if (waits_ && begun_) [encoder_ memoryBarrierWithScope:MTLBarrierScopeBuffers];
  waits_ = false;
  begun_ = true;
}

void Encoder::bind(const ReadyLaunch& launch) {
  const KernelInfo& kernel = *launch.kernel;
  const Arguments& arguments = *launch.arguments;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& info = kernel.arguments[i];
    if (info.kind == ArgumentKind::threadgroup) {
      [encoder_ setThreadgroupMemoryLength:threadgroup_length(arguments.threadgroup_bytes[info.index])
                                   atIndex:info.index];
      continue;
    }
    const void* data = arguments.buffers[info.index];
    const uint64_t bytes = arguments.bytes[info.index];
    if (!data || bytes == 0) continue;  // disabled by a function constant, or empty
    if (info.kind == ArgumentKind::value) {
      [encoder_ setBytes:data length:info.size atIndex:info.index];
      continue;
    }
    Place place;
    const ArgumentName name{launch.label, kernel.name, info.name};
    if (!memory_.find(data, bytes, name, place)) memory_.find(staging_.copy_of(data), bytes, name, place);
    [encoder_ setBuffer:place.buffer offset:place.offset atIndex:info.index];
  }
}

}  // namespace pyturbo::metal
