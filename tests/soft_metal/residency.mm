// What macOS 15 adds: reachable through respondsToSelector: only, declared by whoever uses it.
#include "residency.h"
#include "control.h"
#include "objects.h"

#include <chrono>
#include <thread>

namespace {

void set_resident(uint64_t allocations) {
  soft_metal::count([&](soft_metal::Counters& counters) { counters.resident = allocations; });
}

}  // namespace

@implementation MTLResidencySetDescriptor

@synthesize label = label_, initialCapacity = initialCapacity_;

- (void)dealloc {
  [label_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLResidencySetDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.label = label_;
  copy.initialCapacity = initialCapacity_;
  return copy;
}

@end

// Keeps its allocations alive, as a set that is forgotten would on a Mac.
@implementation SoftResidencySet

- (id)init {
  if ((self = [super init])) allocations_ = [[NSMutableArray alloc] init];
  return self;
}

- (void)dealloc {
  [allocations_ release];
  [super dealloc];
}

- (void)addAllocation:(id)allocation {
  if (![allocations_ containsObject:allocation]) [allocations_ addObject:allocation];
}

- (void)removeAllocation:(id)allocation {
  [allocations_ removeObject:allocation];
}

- (NSUInteger)allocationCount {
  return [allocations_ count];
}

- (void)commit {
  committed_ = [allocations_ count];
  if (requested_) set_resident(committed_);
}

- (void)requestResidency {
  if (const auto fault = soft_metal::take_fault(soft_metal::Fault::slow_residency))
    std::this_thread::sleep_for(std::chrono::milliseconds(fault->milliseconds));
  requested_ = YES;
  set_resident(committed_);
  soft_metal::count([](soft_metal::Counters& counters) { ++counters.residency_requests; });
}

- (void)endResidency {
  requested_ = NO;
  set_resident(0);
}

@end
