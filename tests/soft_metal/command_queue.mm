#include <objc/runtime.h>

#include "objects.h"

@implementation SoftCommandQueue

- (id)initWithDevice:(id)device {
  if (!(self = [super init])) return nil;
  queue_ = new std::shared_ptr<soft_metal::Queue>(soft_metal::Queue::start());
  device_ = [device retain];
  residencySets_ = [[NSMutableArray alloc] init];
  return self;
}

- (void)dealloc {
  (*queue_)->close();
  delete queue_;
  [residencySets_ release];
  [device_ release];
  [super dealloc];
}

- (id<MTLCommandBuffer>)commandBuffer {
  return [[[SoftCommandBuffer alloc] initWithQueue:self retainedReferences:YES] autorelease];
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [[[SoftCommandBuffer alloc] initWithQueue:self retainedReferences:NO] autorelease];
}

- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
  return [[[SoftCommandBuffer alloc] initWithQueue:self
                                retainedReferences:descriptor.retainedReferences] autorelease];
}

- (void)addResidencySet:(id)residencySet {
  [residencySets_ addObject:residencySet];
}

- (void)removeResidencySet:(id)residencySet {
  [residencySets_ removeObject:residencySet];
}

- (BOOL)respondsToSelector:(SEL)selector {
  const bool residency = sel_isEqual(selector, @selector(addResidencySet:)) ||
                         sel_isEqual(selector, @selector(removeResidencySet:));
  return residency && !soft_metal::options().residency_sets ? NO : [super respondsToSelector:selector];
}

@end
