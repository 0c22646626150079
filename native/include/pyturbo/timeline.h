// When the launches of a timed replay ran.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace pyturbo {

// Seconds of std::chrono::steady_clock, the clock of all times here.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One execution of a launch.
struct LaunchRun {
  uint64_t launch;  // its index
  double begin, end;
};

// A call of HostLoop::begin() or next(), during which no launch ran.
struct HostCall {
  uint64_t loop;  // its index
  uint64_t pass;  // that next() prepared, unless none was left; 0 for begin()
  double begin, end;
};

struct Timeline {
  double begin = 0, end = 0;  // of the replay
  std::vector<LaunchRun> runs;
  std::vector<HostCall> calls;
};

}  // namespace pyturbo
