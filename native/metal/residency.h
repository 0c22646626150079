// Residency sets: buffers that stay where the GPU can reach them. macOS 15 and newer; elsewhere nothing
// happens.
#pragma once

#import <Metal/Metal.h>

#include "metal/object.h"

namespace pyturbo::metal {

class Residency {
 public:
  Residency(id<MTLDevice> device, id<MTLCommandQueue> queue);
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  bool active() const { return bool(set_); }
  void add(id<MTLBuffer> buffer);
  void remove(id<MTLBuffer> buffer);

 private:
  Ref<QueueObject> queue_;
  Ref<id> set_;
};

}  // namespace pyturbo::metal
