// Residency sets keep buffers accessible to the GPU. They exist from macOS 15 on; on older systems this class
// does nothing.
#pragma once

#import <Metal/Metal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "metal/object.h"

namespace pyturbo::metal {

// How long buffers stay resident without work for the GPU. The system gives up the residency of an idle
// process after about a second, and the next token would wait until gigabytes are wired again.
struct KeepAlive {
  std::chrono::milliseconds interval{500};  // between two requests
  std::chrono::milliseconds lasts{180'000};
};

// Owner: the device and its memory. Any thread; one lock. A thread of its own repeats the request for
// residency until there has been no work for some time.
class Residency {
 public:
  Residency(id<MTLDevice> device, id<MTLCommandQueue> queue, const KeepAlive& keep_alive = {});
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  bool active() const { return bool(set_); }
  void add(id<MTLBuffer> buffer);
  void remove(id<MTLBuffer> buffer);

  // Notes that the GPU has got work.
  void used();

 private:
  using Clock = std::chrono::steady_clock;

  void keep_alive();

  const KeepAlive times_;
  Ref<QueueObject> queue_;
  Ref<id> set_;
  std::mutex mutex_;  // guards the set and the members below
  std::condition_variable changed_;
  Clock::time_point last_use_;
  bool asleep_ = true;  // nothing has been used for some time
  bool ends_ = false;
  std::thread thread_;  // runs keep_alive()
};

}  // namespace pyturbo::metal
