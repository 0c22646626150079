#include "metal/cores.h"

#import <IOKit/IOKitLib.h>

#include "metal/object.h"

namespace pyturbo::metal {

uint32_t core_count(id<MTLDevice> device) {
  // The search for the entry takes over the dictionary.
  const io_service_t entry =
      IOServiceGetMatchingService(kIOMainPortDefault, IORegistryEntryIDMatching([device registryID]));
  if (!entry) return 0;
  const CFTypeRef value =
      IORegistryEntrySearchCFProperty(entry, kIOServicePlane, (CFStringRef) @"gpu-core-count", nullptr,
                                      kIORegistryIterateRecursively | kIORegistryIterateParents);
  IOObjectRelease(entry);
  const auto count = Ref<NSNumber*>::adopt((NSNumber*)value);
  return [count.get() isKindOfClass:[NSNumber class]] ? uint32_t([count.get() unsignedIntValue]) : 0;
}

}  // namespace pyturbo::metal
