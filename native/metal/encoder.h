// Encodes launches into command buffers.
#pragma once

#import <Metal/Metal.h>

#include "metal/memory.h"
#include "metal/pipelines.h"
#include "metal/plan.h"
#include "metal/staging.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// One compute pass, whose kernels run concurrently except across barriers. Owner: the device, for one run.
// One thread, under the device's lock.
class Encoder {
 public:
  Encoder(id<MTLComputeCommandEncoder> encoder, Pipelines& pipelines, Memory& memory, const Staging& staging)
      : encoder_(encoder), pipelines_(pipelines), memory_(memory), staging_(staging) {}
  ~Encoder() { [encoder_ endEncoding]; }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Skips a launch without threadgroups. Throws as Pipelines and Memory do.
  void add(const ReadyLaunch& launch);

  // Adds launch i of a plan. `groups`, if it has a buffer, is where the GPU finds the number of threadgroups
  // when the launch runs.
  void add(const Plan& plan, size_t i, const Place& groups = {});

 private:
  void bind(const ReadyLaunch& launch);
  void set_pipeline(id<MTLComputePipelineState> pipeline);
  void wait_if_needed();

  id<MTLComputeCommandEncoder> encoder_;
  Pipelines& pipelines_;
  Memory& memory_;
  const Staging& staging_;
  id<MTLComputePipelineState> pipeline_ = nil;  // the current one
  bool waits_ = false;                          // the next dispatch needs a barrier
  bool begun_ = false;                          // the pass has a dispatch
};

}  // namespace pyturbo::metal
