// Launches into command buffers.
#pragma once

#import <Metal/Metal.h>

#include "metal/memory.h"
#include "metal/pipelines.h"
#include "metal/staging.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// Encodes launches into one compute pass, whose kernels run concurrently except where a barrier is. One
// thread.
class Encoder {
 public:
  Encoder(id<MTLComputeCommandEncoder> encoder, Pipelines& pipelines, Memory& memory, const Staging& staging)
      : encoder_(encoder), pipelines_(pipelines), memory_(memory), staging_(staging) {}
  ~Encoder() { [encoder_ endEncoding]; }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // A launch without threadgroups is left out. Throws what finding its pipeline or memory does.
  void add(const ReadyLaunch& launch);

 private:
  void bind(const ReadyLaunch& launch);

  id<MTLComputeCommandEncoder> encoder_;
  Pipelines& pipelines_;
  Memory& memory_;
  const Staging& staging_;
  id<MTLComputePipelineState> pipeline_ = nil;  // set last
  bool waits_ = false;                          // the next dispatch needs a barrier
  bool begun_ = false;                          // there is a dispatch
};

}  // namespace pyturbo::metal
