// Residency sets keep buffers accessible to the GPU. They exist from macOS 15 on; on older systems this class
// does nothing.
#pragma once

#import <Metal/Metal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "metal/object.h"

namespace pyturbo::metal {

// How long buffers stay resident without work for the GPU. The system gives up the residency of an idle
// process after about a second, and the next token would wait until gigabytes are wired again.
struct KeepAlive {
  std::chrono::milliseconds interval{500};  // between two requests
  std::chrono::milliseconds lasts{180'000};
};

// Owner: the device and its memory. Any thread. One thread at a time uses the set, without a lock: a request
// may take as long as wiring gigabytes does. Requests come from a thread of this class, for new buffers and,
// until there has been no work for some time, again and again.
class Residency {
 public:
  Residency(id<MTLDevice> device, id<MTLCommandQueue> queue, const KeepAlive& keep_alive = {});
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  bool active() const { return bool(set_); }

  // Adds a buffer, during a request once that is over.
  void add(id<MTLBuffer> buffer);

  // Removes a buffer, whose memory may be gone afterwards: waits for a request under way.
  void remove(id<MTLBuffer> buffer);

  // Notes that the GPU has got work. Waits for nothing.
  void used();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  // Calls `work` with the set, unlocked, and adds buffers that came meanwhile. Nobody else has the set.
  template <typename Work>
  void use_set(Lock& lock, const Work& work);
  void request();

  const KeepAlive times_;
  Ref<QueueObject> queue_;
  Ref<id> set_;
  std::mutex mutex_;  // guards the members up to thread_
  std::condition_variable changed_;
  std::vector<Ref<BufferObject>> added_;  // not in the set yet
  bool busy_ = false;                     // a thread uses the set
  bool wanted_ = false;                   // the set has buffers for which nobody has asked
  bool ends_ = false;
  std::thread thread_;                    // runs request()
  std::atomic<Clock::rep> last_use_ = 0;  // since the epoch of the clock
  std::atomic<bool> asleep_ = true;       // nothing has been used for some time
};

}  // namespace pyturbo::metal
