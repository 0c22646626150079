#include "metal/residency.h"

#include <utility>

#include "metal/residency_selectors.h"

namespace pyturbo::metal {

Residency::Residency(id<MTLDevice> device, id<MTLCommandQueue> queue, const KeepAlive& keep_alive)
    : times_(keep_alive), queue_(Ref<QueueObject>::retain(queue)) {
  const Class descriptor = NSClassFromString(@"MTLResidencySetDescriptor");
  if (!descriptor || ![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)] ||
      ![queue respondsToSelector:@selector(addResidencySet:)])
    return;
  NSError* error = nil;
  const auto wanted = Ref<id>::adopt([[descriptor alloc] init]);
  set_ = Ref<id>::adopt([(id)device newResidencySetWithDescriptor:wanted.get() error:&error]);
  if (!set_) return;
  [(id)queue addResidencySet:set_.get()];
  thread_ = std::thread([this] { request(); });
}

Residency::~Residency() {
  if (!set_) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  const Pool pool;
  [set_.get() endResidency];
  [(id)queue_.get() removeResidencySet:set_.get()];
}

template <typename Work>
void Residency::use_set(Lock& lock, const Work& work) {
  const Pool pool;
  changed_.wait(lock, [&] { return !busy_; });
  busy_ = true;
  lock.unlock();
  work();
  lock.lock();
  while (!added_.empty()) {
    const std::vector<Ref<BufferObject>> buffers = std::exchange(added_, {});
    lock.unlock();
    for (const Ref<BufferObject>& buffer : buffers) [set_.get() addAllocation:buffer.get()];
    [set_.get() commit];
    lock.lock();
    wanted_ = true;
  }
  busy_ = false;
  changed_.notify_all();
}

void Residency::add(id<MTLBuffer> buffer) {
  if (!set_) return;
  Lock lock(mutex_);
  added_.push_back(Ref<BufferObject>::retain(buffer));
  if (!busy_) use_set(lock, [] {});
}

void Residency::remove(id<MTLBuffer> buffer) {
  if (!set_) return;
  Lock lock(mutex_);
  use_set(lock, [&] {
    [set_.get() removeAllocation:buffer];
    [set_.get() commit];
  });
}

// Either this sees that the thread is asleep, or the thread sees the new time.
void Residency::used() {
  if (!set_) return;
  last_use_ = Clock::now().time_since_epoch().count();
  if (!asleep_.exchange(false)) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Residency::request() {
  const auto ready = [&] { return ends_ || wanted_; };
  Lock lock(mutex_);
  while (!ends_) {
    if (asleep_) {
      changed_.wait(lock, [&] { return ready() || !asleep_; });
    } else if (!changed_.wait_for(lock, times_.interval, ready)) {
      asleep_ = true;
      if (Clock::now() - Clock::time_point(Clock::duration(last_use_)) <= times_.lasts) asleep_ = false;
    }
    if (ends_ || (asleep_ && !wanted_)) continue;
    wanted_ = false;
    use_set(lock, [&] { [set_.get() requestResidency]; });
  }
}

}  // namespace pyturbo::metal
