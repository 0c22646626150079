#include <objc/runtime.h>

#include "objects.h"

namespace {

IMP autorelease_of_foundation;

// Metal's own objects and what callers make of Foundation both leak where no pool is.
id autorelease_watched(id self, SEL selector) {
  if (![NSAutoreleasePool currentPool])
    soft_metal::violate(soft_metal::Rule::autorelease_pool, class_getName(object_getClass(self)),
                        "expected an autorelease pool on this thread, got none");
  return reinterpret_cast<id (*)(id, SEL)>(autorelease_of_foundation)(self, selector);
}

// "SoftBuffer" stands for "MTLBuffer".
std::string public_name(id object) {
  const std::string name = class_getName(object_getClass(object));
  return name.rfind("Soft", 0) == 0 ? "MTL" + name.substr(4) : name;
}

}  // namespace

std::string soft_text(NSString* string) {
  if (!string) return "";
  const SoftPool pool;
  return [string UTF8String];
}

NSString* soft_new_string(const std::string& text) {
  return [[NSString alloc] initWithBytes:text.data() length:text.size() encoding:NSUTF8StringEncoding];
}

std::string soft_path(NSURL* url) {
  if (!url) return "";
  const SoftPool pool;
  return [[url path] fileSystemRepresentation];
}

void soft_error(NSError** error, NSErrorDomain domain, NSInteger code, const std::string& text) {
  if (!error) return;
  NSString* description = soft_new_string(text);
  NSDictionary* information =
      [[NSDictionary alloc] initWithObjectsAndKeys:description, NSLocalizedDescriptionKey, nil];
  *error = [[[NSError alloc] initWithDomain:domain code:code userInfo:information] autorelease];
  [information release];
  [description release];
}

@implementation SoftObject

+ (void)initialize {
  if (self != [SoftObject class]) return;
  Method method = class_getInstanceMethod([NSObject class], @selector(autorelease));
  autorelease_of_foundation = method_setImplementation(method, reinterpret_cast<IMP>(autorelease_watched));
}

+ (id)allocWithZone:(NSZone*)zone {
  id object = [super allocWithZone:zone];
  soft_metal::object_created(public_name(object));
  return object;
}

- (void)dealloc {
  soft_metal::object_gone(public_name(self));
  [super dealloc];
}

@end

@implementation SoftLabelled

@synthesize label = label_;

- (std::string)quoted {
  return public_name(self) + " '" + soft_text(label_) + "'";
}

- (void)dealloc {
  [label_ release];
  [super dealloc];
}

@end
