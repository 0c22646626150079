// The geometry of launches as Metal takes it.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <string>

#include "pyturbo/device.h"
#include "pyturbo/error.h"

namespace pyturbo::metal {

inline MTLSize metal_size(const Extent& extent) { return MTLSizeMake(extent.x, extent.y, extent.z); }

// Returns a length of threadgroup memory as Metal accepts it: a multiple of 16 bytes.
inline NSUInteger threadgroup_length(uint32_t bytes) { return (NSUInteger(bytes) + 15) / 16 * 16; }

// Throws Error{device} for more threads in a threadgroup than the pipeline allows.
inline void require_threads(const ReadyLaunch& launch, NSUInteger most) {
  const uint64_t threads = launch.dispatch.threads.count();
  if (threads > most)
    throw Error(ErrorKind::device,
                std::string(launch.kernel->name) + ": expected at most " + std::to_string(most) +
                    " threads in a threadgroup on this device, got " + std::to_string(threads));
}

}  // namespace pyturbo::metal
