// The residency sets of macOS 15.
#pragma once

#include "objects.h"

@interface MTLResidencySetDescriptor : SoftObject <NSCopying> {
  NSString* label_;
  NSUInteger initialCapacity_;
}
@property(copy, nonatomic) NSString* label;
@property(readwrite, nonatomic) NSUInteger initialCapacity;
@end

@interface SoftResidencySet : SoftLabelled {
  NSMutableArray* allocations_;
  NSUInteger committed_;
  BOOL requested_;
}
- (void)addAllocation:(id)allocation;
- (void)removeAllocation:(id)allocation;
- (NSUInteger)allocationCount;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end
