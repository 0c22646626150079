// Ownership of Objective-C objects in C++, and the autorelease pool for temporary ones.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <string>
#include <utility>

#include "pyturbo/error.h"

namespace pyturbo::metal {

// GCC does not parse id<...> as a template argument.
using DeviceObject = id<MTLDevice>;
using QueueObject = id<MTLCommandQueue>;
using BufferObject = id<MTLBuffer>;
using LibraryObject = id<MTLLibrary>;
using FunctionObject = id<MTLFunction>;
using PipelineObject = id<MTLComputePipelineState>;
using ArchiveObject = id<MTLBinaryArchive>;
using CommandsObject = id<MTLCommandBuffer>;
using SamplesObject = id<MTLCounterSampleBuffer>;

// Owns one reference to an object. T is an object pointer, such as BufferObject or NSString*. No lock: copies
// of a Ref may be used on several threads, one Ref on one at a time.
template <typename T>
class Ref {
 public:
  Ref() = default;
  // Takes over a reference that new..., alloc or copy returned.
  static Ref adopt(T object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  // Adds a reference to an object that has another owner.
  static Ref retain(T object) { return adopt([object retain]); }

  Ref(const Ref& other) : object_([other.object_ retain]) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { [object_ release]; }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  T object_ = nil;
};

// An autorelease pool for one scope, on the thread that made it. Every function that C++ calls has one.
class Pool {
 public:
  Pool() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~Pool() { [pool_ drain]; }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  NSAutoreleasePool* pool_;
};

// Returns whether Foundation accepts a text as UTF-8: no broken sequences, surrogates or overlong forms.
inline bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? uint8_t(text[at]) : uint8_t(0); };
    const uint8_t first = byte(i), second = byte(i + 1);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0 || (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
      return false;
    for (size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    i += length;
  }
  return true;
}

// Throws Error{argument}, with `what` as the name of the text, when it is not UTF-8.
inline NSString* string(const std::string& text, const char* what = "text") {
  if (!is_utf8(text)) throw Error(ErrorKind::argument, std::string(what) + ": expected UTF-8, got " + text);
  return [NSString stringWithUTF8String:text.c_str()];
}

inline std::string text(NSString* string) { return string ? [string UTF8String] : ""; }

// Returns the description of an error.
inline std::string text(NSError* error) {
  return error ? text([error localizedDescription]) : "no reason was given";
}

}  // namespace pyturbo::metal
