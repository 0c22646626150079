#include "metal/timing.h"

namespace pyturbo::metal {
namespace {

id<MTLCounterSet> timestamps(id<MTLDevice> device) {
  NSArray* sets = [device counterSets];
  for (NSUInteger i = 0; i < [sets count]; ++i) {
    id<MTLCounterSet> set = [sets objectAtIndex:i];
    if ([[set name] isEqualToString:MTLCommonCounterSetTimestamp]) return set;
  }
  return nil;
}

}  // namespace

PassTimer::PassTimer(id<MTLDevice> device) : device_(Ref<DeviceObject>::retain(device)) {
  id<MTLCounterSet> set = timestamps(device);
  if (!set || ![device supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary]) return;
  const auto wanted =
      Ref<MTLCounterSampleBufferDescriptor*>::adopt([[MTLCounterSampleBufferDescriptor alloc] init]);
  [wanted.get() setCounterSet:set];
  [wanted.get() setStorageMode:MTLStorageModeShared];
  [wanted.get() setSampleCount:2 * kPasses];
  NSError* error = nil;
  samples_ = Ref<SamplesObject>::adopt([device newCounterSampleBufferWithDescriptor:wanted.get()
                                                                              error:&error]);
  [device sampleTimestamps:&cpu_begin_ gpuTimestamp:&gpu_begin_];
}

MTLComputePassDescriptor* PassTimer::pass(size_t i) const {
  MTLComputePassDescriptor* pass = [MTLComputePassDescriptor computePassDescriptor];
  MTLComputePassSampleBufferAttachmentDescriptor* attachment =
      [[pass sampleBufferAttachments] objectAtIndexedSubscript:0];
  [attachment setSampleBuffer:samples_.get()];
  [attachment setStartOfEncoderSampleIndex:2 * i];
  [attachment setEndOfEncoderSampleIndex:2 * i + 1];
  return pass;
}

std::vector<double> PassTimer::seconds(size_t count) const {
  // Timestamps of the GPU have a unit of their own; those of the CPU are nanoseconds.
  MTLTimestamp cpu = 0, gpu = 0;
  [device_.get() sampleTimestamps:&cpu gpuTimestamp:&gpu];
  const double unit = gpu > gpu_begin_ ? double(cpu - cpu_begin_) / double(gpu - gpu_begin_) : 1.0;
  std::vector<double> seconds(count, 0.0);
  NSData* data = [samples_.get() resolveCounterRange:NSMakeRange(0, 2 * count)];
  const auto* stamps = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
  if (!stamps) return seconds;
  for (size_t i = 0; i < count; ++i) {
    const MTLTimestamp begin = stamps[2 * i].timestamp, end = stamps[2 * i + 1].timestamp;
    const bool sampled = begin != MTLCounterErrorValue && end != MTLCounterErrorValue && end >= begin;
    if (sampled) seconds[i] = double(end - begin) * unit * 1e-9;
  }
  return seconds;
}

}  // namespace pyturbo::metal
