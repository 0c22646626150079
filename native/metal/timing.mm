#include "metal/timing.h"

#include <algorithm>

#include "pyturbo/timeline.h"

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
  begin_ = now();
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

// The GPU's timestamps are compared with the steady clock itself, and not with the timestamps of the CPU that
// Metal returns with them: these need not count the time that the machine sleeps, which the steady clock
// does.
PassTimer::Moment PassTimer::now() const {
  MTLTimestamp cpu = 0;
  Moment moment;
  const double before = steady_seconds();
  [device_.get() sampleTimestamps:&cpu gpuTimestamp:&moment.gpu];
  moment.seconds = (before + steady_seconds()) / 2;
  return moment;
}

std::vector<PassTime> PassTimer::times(size_t count) const {
  const Moment end = now();
  const double ticks = double(end.gpu - begin_.gpu), seconds = end.seconds - begin_.seconds;
  const auto when = [&](MTLTimestamp stamp) {
    return begin_.seconds + std::clamp(double(stamp - begin_.gpu) / std::max(ticks, 1.0), 0.0, 1.0) * seconds;
  };
  NSData* data = [samples_.get() resolveCounterRange:NSMakeRange(0, 2 * count)];
  const auto* stamps = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
  std::vector<PassTime> times;
  double last = begin_.seconds;
  for (size_t i = 0; i < count; ++i) {
    const MTLTimestamp begin = stamps ? stamps[2 * i].timestamp : MTLCounterErrorValue;
    const MTLTimestamp end = stamps ? stamps[2 * i + 1].timestamp : MTLCounterErrorValue;
    const bool sampled =
        begin != MTLCounterErrorValue && end != MTLCounterErrorValue && begin >= begin_.gpu && end >= begin;
    times.push_back(sampled ? PassTime{when(begin), when(end)} : PassTime{last, last});
    last = times.back().end;
  }
  return times;
}

}  // namespace pyturbo::metal
