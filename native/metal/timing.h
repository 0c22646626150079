// GPU time of single launches.
#pragma once

#import <Metal/Metal.h>

#include <vector>

#include "metal/object.h"

namespace pyturbo::metal {

// Timestamps at the boundaries of compute passes. Made for one run; there is one only where the device has
// them.
class PassTimer {
 public:
  // Launches that one timer serves: what the samples of one buffer are enough for.
  static constexpr size_t kPasses = 1024;

  explicit PassTimer(id<MTLDevice> device);
  explicit operator bool() const { return bool(samples_); }

  // A pass whose begin and end are sampled as number `i`; the caller's pool owns it.
  MTLComputePassDescriptor* pass(size_t i) const;

  // Seconds of the first `count` passes, when they are done; a pass that was not sampled has zero.
  std::vector<double> seconds(size_t count) const;

 private:
  Ref<DeviceObject> device_;
  Ref<SamplesObject> samples_;
  MTLTimestamp cpu_begin_ = 0, gpu_begin_ = 0;
};

}  // namespace pyturbo::metal
