#include "metal/residency.h"

#include "metal/residency_selectors.h"

namespace pyturbo::metal {

Residency::Residency(id<MTLDevice> device, id<MTLCommandQueue> queue)
    : queue_(Ref<QueueObject>::retain(queue)) {
  const Class descriptor = NSClassFromString(@"MTLResidencySetDescriptor");
  if (!descriptor || ![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)] ||
      ![queue respondsToSelector:@selector(addResidencySet:)])
    return;
  NSError* error = nil;
  const auto wanted = Ref<id>::adopt([[descriptor alloc] init]);
  set_ = Ref<id>::adopt([(id)device newResidencySetWithDescriptor:wanted.get() error:&error]);
  if (set_) [(id)queue addResidencySet:set_.get()];
}

Residency::~Residency() {
  if (!set_) return;
  const Pool pool;
  [set_.get() endResidency];
  [(id)queue_.get() removeResidencySet:set_.get()];
}

void Residency::add(id<MTLBuffer> buffer) {
  if (!set_) return;
  [set_.get() addAllocation:buffer];
  [set_.get() commit];
  [set_.get() requestResidency];
}

void Residency::remove(id<MTLBuffer> buffer) {
  if (!set_) return;
  [set_.get() removeAllocation:buffer];
  [set_.get() commit];
}

}  // namespace pyturbo::metal
