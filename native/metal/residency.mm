#include "metal/residency.h"

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
  thread_ = std::thread([this] { this->keep_alive(); });
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

void Residency::add(id<MTLBuffer> buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  [set_.get() addAllocation:buffer];
  [set_.get() commit];
  [set_.get() requestResidency];
}

void Residency::remove(id<MTLBuffer> buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  [set_.get() removeAllocation:buffer];
  [set_.get() commit];
}

void Residency::used() {
  if (!set_) return;
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  last_use_ = now;
  if (!asleep_) return;
  asleep_ = false;
  changed_.notify_all();
}

void Residency::keep_alive() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (asleep_) {
      changed_.wait(lock, [&] { return ends_ || !asleep_; });
    } else if (!changed_.wait_for(lock, times_.interval, [&] { return ends_; })) {
      const Pool pool;
      asleep_ = Clock::now() - last_use_ > times_.lasts;
      if (!asleep_) [set_.get() requestResidency];
    }
  }
}

}  // namespace pyturbo::metal
