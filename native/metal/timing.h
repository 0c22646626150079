// GPU times of single launches.
#pragma once

#import <Metal/Metal.h>

#include <vector>

#include "metal/object.h"

namespace pyturbo::metal {

// Timestamps at the boundaries of compute passes. False when the device does not support them. Owner: one run
// of the device, on its thread.
class PassTimer {
 public:
  // Most passes of one timer: the samples of one buffer suffice for them.
  static constexpr size_t kPasses = 1024;

  explicit PassTimer(id<MTLDevice> device);
  explicit operator bool() const { return bool(samples_); }

  // Returns the descriptor of pass `i`, whose begin and end are sampled. The caller's pool owns it.
  MTLComputePassDescriptor* pass(size_t i) const;

  // Returns the seconds of the first `count` passes after they have finished; 0 for a pass without samples.
  std::vector<double> seconds(size_t count) const;

 private:
  Ref<DeviceObject> device_;
  Ref<SamplesObject> samples_;
  MTLTimestamp cpu_begin_ = 0, gpu_begin_ = 0;
};

}  // namespace pyturbo::metal
