// Methods that macOS 15 adds, for older SDKs. They are called only on objects that respond to them.
#pragma once

#import <Foundation/Foundation.h>

#if !defined(__MAC_15_0) || __MAC_OS_X_VERSION_MAX_ALLOWED < 150000
@interface NSObject (PyturboResidency)
- (id)newResidencySetWithDescriptor:(id)descriptor error:(NSError**)error;
- (void)addResidencySet:(id)set;
- (void)removeResidencySet:(id)set;
- (void)addAllocation:(id)allocation;
- (void)removeAllocation:(id)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end
#endif
