// When single launches ran on the GPU.
#pragma once

#include <memory>
#include <vector>

#include "cuda/stream.h"
#include "pyturbo/timeline.h"

namespace pyturbo::cuda {

// Events around launches. Owner: one run of the device, on its thread, with the context current.
class LaunchTimer {
 public:
  // Waits for the work begun before.
  LaunchTimer(Stream& stream, size_t launches);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // Called before and after each launch.
  void mark();

  // Returns when the launches ran, once they have finished, in seconds of std::chrono::steady_clock.
  std::vector<LaunchRun> times();

 private:
  Stream& stream_;
  std::vector<EventHandle> events_;  // the first one was recorded at begin_
  double begin_ = 0;
};

}  // namespace pyturbo::cuda
