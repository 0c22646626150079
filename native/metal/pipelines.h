// Compiled kernels, each compiled once per process and kept on disk.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "core/instances.h"
#include "metal/library.h"
#include "metal/object.h"
#include "pyturbo/device.h"

namespace pyturbo::metal {

// Pipelines by kernel and function constants. On disk they are kept in a binary archive whose name identifies
// the library, the device and the build of the system. An archive that cannot be read is replaced; when
// several processes write it, the last one wins. Owner: the device. Any thread; one lock for the table, and
// one for the archive.
class Pipelines {
 public:
  Pipelines(id<MTLDevice> device, Precision precision);

  // Makes the pipelines of launches that do not exist yet, several at once, and saves them. `progress` is
  // called with those made or found in the archive, and their number. Throws Error{device} with Metal's
  // message.
  void prepare(std::span<const ReadyLaunch> launches,
               const std::function<void(uint64_t done, uint64_t total)>& progress);

  // Returns a pipeline that lives as long as this object. Throws Error{device} with Metal's message.
  id<MTLComputePipelineState> get(const KernelInfo& kernel, const void* const* constants);

  // Adds the pipelines that were made to the archive, and writes it. A failure is ignored: the next process
  // compiles again.
  void save();

  const Library& library() const { return library_; }

 private:
  Ref<ArchiveObject> open_archive(const std::string& path);
  id<MTLComputePipelineState> find(const InstanceKey& key);  // nil: there is none yet
  id<MTLComputePipelineState> add(const InstanceKey& key, const void* const* constants);
  Ref<PipelineObject> make(const KernelInfo& kernel, const void* const* constants);

  Ref<DeviceObject> device_;
  Library library_;
  std::string archive_path_;  // empty: there is no archive on disk
  Ref<ArchiveObject> archive_;
  std::shared_mutex archiving_;                           // guards the archive, which many may read
  std::vector<Ref<MTLComputePipelineDescriptor*>> made_;  // not in the archive yet
  std::mutex mutex_;
  std::map<InstanceKey, Ref<PipelineObject>> pipelines_;
};

}  // namespace pyturbo::metal
