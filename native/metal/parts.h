// How launches are divided into command buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "pyturbo/device.h"
#include "pyturbo/work.h"

namespace pyturbo::metal {

// What an M1 surely does in a second, the slowest GPU with the functions that kernels use: a bit less than
// the 68 GB/s of its memory, and 1 of its 2.6 TFLOP/s.
constexpr double kBytesPerSecond = 60e9, kProductsPerSecond = 0.5e12;

// Estimated seconds of a command buffer. The first one of a replay is short, so that the GPU begins early;
// the others are short enough that the screen and other programs get their turn. Only a launch that is longer
// by itself exceeds the most.
constexpr double kFirstSeconds = 0.005, kEnoughSeconds = 0.05, kMostSeconds = 0.1;

inline double estimated_seconds(const ReadyLaunch& launch) {
  if (launch.dispatch.groups.count() == 0) return 0;
  const Work work = work_of(*launch.kernel, *launch.arguments);
  return std::max(work.bytes / kBytesPerSecond, work.products / kProductsPerSecond);
}

// Returns the command buffer that begins with launch `begin` of those up to `end`. `seconds(i)` is the
// estimate of launch i.
template <typename Seconds>
Part next_part(size_t begin, size_t end, bool first, const Seconds& seconds) {
  Part part{begin, begin, 0};
  for (; part.end < end && part.seconds < (first ? kFirstSeconds : kEnoughSeconds); ++part.end) {
    const double more = seconds(part.end);
    if (part.end > begin && part.seconds + more > kMostSeconds) break;
    part.seconds += more;
  }
  return part;
}

// Returns all command buffers of a replay.
template <typename Seconds>
std::vector<Part> parts_of(size_t launches, const Seconds& seconds) {
  std::vector<Part> parts;
  for (size_t begin = 0; begin < launches; begin = parts.back().end)
    parts.push_back(next_part(begin, launches, begin == 0, seconds));
  return parts;
}

}  // namespace pyturbo::metal
