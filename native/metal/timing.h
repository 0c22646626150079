// When single launches ran on the GPU.
#pragma once

#import <Metal/Metal.h>

#include <vector>

#include "metal/object.h"

namespace pyturbo::metal {

// A compute pass, in seconds of std::chrono::steady_clock.
struct PassTime {
  double begin, end;
};

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

  // Returns when the first `count` passes ran, after they have finished. A pass without samples takes no
  // time.
  std::vector<PassTime> times(size_t count) const;

 private:
  // A moment by both clocks.
  struct Moment {
    MTLTimestamp gpu = 0;
    double seconds = 0;
  };

  Moment now() const;

  Ref<DeviceObject> device_;
  Ref<SamplesObject> samples_;
  Moment begin_;
};

}  // namespace pyturbo::metal
