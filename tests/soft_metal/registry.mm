// The registry of the system, in which the one GPU of soft Metal may say how many cores it has.
#import <IOKit/IOKitLib.h>

#include "objects.h"

namespace {

constexpr io_service_t kEntry = 7;  // of the GPU

}  // namespace

const mach_port_t kIOMainPortDefault = 0;

CFMutableDictionaryRef IORegistryEntryIDMatching(uint64_t entryID) {
  NSNumber* number = [[NSNumber alloc] initWithUnsignedLongLong:entryID];
  return (CFMutableDictionaryRef)number;  // only IOServiceGetMatchingService looks at it
}

io_service_t IOServiceGetMatchingService(mach_port_t mainPort, CFDictionaryRef matching) {
  NSNumber* number = (NSNumber*)matching;
  const bool found =
      mainPort == kIOMainPortDefault && [number unsignedLongLongValue] == soft_metal::kRegistryID;
  [number release];
  return found ? kEntry : 0;
}

CFTypeRef IORegistryEntrySearchCFProperty(io_registry_entry_t entry, const char* plane, CFStringRef key,
                                          CFAllocatorRef, IOOptionBits) {
  const uint32_t cores = soft_metal::options().gpu_cores;
  const bool known = entry == kEntry && std::string(plane) == kIOServicePlane &&
                     [(NSString*)key isEqualToString:@"gpu-core-count"] && cores > 0;
  return known ? (CFTypeRef)[[NSNumber alloc] initWithUnsignedInt:cores] : nullptr;
}

kern_return_t IOObjectRelease(io_object_t) { return 0; }
