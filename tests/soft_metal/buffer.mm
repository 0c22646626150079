#include "objects.h"

@implementation SoftBuffer

- (id)initWithMemory:(std::shared_ptr<soft_metal::Memory>)memory
              device:(id)device
             options:(MTLResourceOptions)options {
  if (!(self = [super init])) return nil;
  memory->untracked = (options & MTLResourceHazardTrackingModeMask) == MTLResourceHazardTrackingModeUntracked;
  storageMode_ = MTLStorageMode((options & MTLResourceStorageModeMask) >> MTLResourceStorageModeShift);
  memory_ = new std::shared_ptr<soft_metal::Memory>(std::move(memory));
  device_ = [device retain];
  return self;
}

- (void)dealloc {
  (*memory_)->released = true;
  if ((*memory_)->unretained_uses > 0)
    soft_metal::violate(soft_metal::Rule::released_in_use, [self quoted],
                        "expected it to live until the command buffer without references has finished");
  delete memory_;
  [device_ release];
  [super dealloc];
}

- (void*)contents {
  return storageMode_ == MTLStorageModePrivate ? nullptr : (*memory_)->data;
}

- (NSUInteger)length {
  return (*memory_)->length;
}

- (uint64_t)gpuAddress {
  return reinterpret_cast<uintptr_t>((*memory_)->data);
}

- (MTLStorageMode)storageMode {
  return storageMode_;
}

@end
