#include "metal/encoder.h"

#include "pyturbo/error.h"

namespace pyturbo::metal {
namespace {

constexpr uint32_t kThreadgroupAlignment = 16;  // lengths of threadgroup memory are multiples of it

MTLSize size(const Extent& extent) { return MTLSizeMake(extent.x, extent.y, extent.z); }

}  // namespace

void Encoder::add(const ReadyLaunch& launch, const uint32_t* groups) {
  waits_ |= launch.waits;
  if (launch.dispatch.groups.count() == 0) return;
  id<MTLComputePipelineState> pipeline = pipelines_.get(*launch.kernel, launch.arguments->constants);
  const uint64_t threads = launch.dispatch.threads.count();
  if (threads > [pipeline maxTotalThreadsPerThreadgroup])
    throw Error(ErrorKind::device, std::string(launch.kernel->name) + ": expected at most " +
                                       std::to_string([pipeline maxTotalThreadsPerThreadgroup]) +
                                       " threads in a threadgroup on this device, got " +
                                       std::to_string(threads));
  if (pipeline != pipeline_) [encoder_ setComputePipelineState:pipeline];
  pipeline_ = pipeline;
  bind(launch);
  if (waits_ && begun_) [encoder_ memoryBarrierWithScope:MTLBarrierScopeBuffers];
  dispatch(launch, groups);
  waits_ = false;
  begun_ = true;
}

void Encoder::dispatch(const ReadyLaunch& launch, const uint32_t* groups) {
  const MTLSize threads = size(launch.dispatch.threads);
  if (!groups) {
    [encoder_ dispatchThreadgroups:size(launch.dispatch.groups) threadsPerThreadgroup:threads];
    return;
  }
  Place place;
  memory_.find(groups, sizeof(MTLDispatchThreadgroupsIndirectArguments),
               {launch.label, launch.kernel->name, "threadgroups"}, place);
  [encoder_ dispatchThreadgroupsWithIndirectBuffer:place.buffer
                              indirectBufferOffset:place.offset
                             threadsPerThreadgroup:threads];
}

void Encoder::bind(const ReadyLaunch& launch) {
  const KernelInfo& kernel = *launch.kernel;
  const Arguments& arguments = *launch.arguments;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& info = kernel.arguments[i];
    if (info.kind == ArgumentKind::threadgroup) {
      const uint32_t bytes = arguments.threadgroup_bytes[info.index];
      const uint32_t whole =
          (bytes + kThreadgroupAlignment - 1) / kThreadgroupAlignment * kThreadgroupAlignment;
      [encoder_ setThreadgroupMemoryLength:whole atIndex:info.index];
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
