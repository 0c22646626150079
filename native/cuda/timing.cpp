#include "cuda/timing.h"

#include <algorithm>

namespace pyturbo::cuda {

LaunchTimer::LaunchTimer(Stream& stream, size_t launches) : stream_(stream) {
  events_.reserve(2 * launches + 1);
  stream_.synchronize();
  mark();
  stream_.synchronize();
  begin_ = steady_seconds();
}

LaunchTimer::~LaunchTimer() {
  for (const EventHandle event : events_) stream_.driver().event_destroy(event);
}

void LaunchTimer::mark() {
  EventHandle event = nullptr;
  stream_.require("an event", stream_.driver().event_create(&event, kEventDefault));
  events_.push_back(event);
  stream_.copied("event", stream_.driver().event_record(event, stream_.handle()));
}

// The first event was recorded before begin_, by the time that the host took to learn of it: what would have
// ended in the future is moved back by that.
std::vector<LaunchRun> LaunchTimer::times() {
  const double now = steady_seconds();
  std::vector<double> moments;  // after the first event
  for (size_t i = 1; i < events_.size(); ++i) {
    float milliseconds = 0;
    stream_.require("the time of an event",
                    stream_.driver().event_elapsed(&milliseconds, events_[0], events_[i]));
    moments.push_back(double(milliseconds) * 1e-3);
  }
  const double first = moments.empty() ? begin_ : std::min(begin_, now - moments.back());
  std::vector<LaunchRun> runs;
  for (size_t i = 0; i + 1 < moments.size(); i += 2)
    runs.push_back({i / 2, first + moments[i], first + moments[i + 1]});
  return runs;
}

}  // namespace pyturbo::cuda
