// What the cases share: a device with its queue and kernels, and what must be left when a case is over.
#pragma once

#import <Metal/Metal.h>

#include <functional>
#include <string>
#include <vector>

#include "native_test.h"
#include "soft_metal/soft_metal.h"

using soft_metal::Rule;

constexpr uint32_t kThreads = 256;  // of the kernel `add`

// Owns what it hands out until it goes. Has an autorelease pool of its own.
class Soft {
 public:
  Soft();
  ~Soft();
  Soft(const Soft&) = delete;

  id<MTLDevice> device() const { return device_; }
  id<MTLCommandQueue> queue() const { return queue_; }
  id<MTLLibrary> library() const { return library_; }

  template <typename T>
  T own(T object) {
    owned_.push_back(object);
    return object;
  }

  id<MTLBuffer> buffer(NSUInteger floats, float value = 0);
  id<MTLComputePipelineState> pipeline(NSString* name, MTLFunctionConstantValues* values = nil);

  id<MTLCommandBuffer> commands(NSString* label = @"case");  // autoreleased
  void finish(id<MTLCommandBuffer> commands);                // commits, waits, must have completed
  std::string failure(id<MTLCommandBuffer> commands);  // commits, waits, must have failed: the error's text

 private:
  NSAutoreleasePool* pool_;
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  id<MTLLibrary> library_;
  std::vector<id> owned_;
};

inline float* floats(id<MTLBuffer> buffer) { return static_cast<float*>([buffer contents]); }

// y = a + b over `count` floats: everything that the dispatch needs.
void encode_add(Soft& soft, id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> a, id<MTLBuffer> b,
                id<MTLBuffer> y, uint32_t count);

// Runs `body` and expects at least one violation, of this rule alone, and no object left.
void breaks(Rule rule, const std::function<void(Soft&)>& body);

// Runs `body` and expects no violation and no object left.
void keeps(const std::function<void(Soft&)>& body);
