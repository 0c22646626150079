// Residency sets keep buffers accessible to the GPU. They exist from macOS 15 on; on older systems this class
// does nothing.
#pragma once

#import <Metal/Metal.h>

#include "metal/object.h"

namespace pyturbo::metal {

// Owner: the device and its memory. One thread at a time, under the lock of Memory.
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
