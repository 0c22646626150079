// Compiled kernels, each compiled once per process and kept on disk.
#pragma once

#import <Metal/Metal.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "metal/library.h"
#include "metal/object.h"
#include "pyturbo/kernel.h"

namespace pyturbo::metal {

// Pipelines by kernel and function constants. On disk they are kept in a binary archive whose name identifies
// the library, the device and the build of the system. An archive that cannot be read is replaced; when
// several processes write it, the last one wins. Owner: the device. Any thread; one lock.
class Pipelines {
 public:
  explicit Pipelines(id<MTLDevice> device);

  // Returns a pipeline that lives as long as this object. Throws Error{device} with Metal's message.
  id<MTLComputePipelineState> get(const KernelInfo& kernel, const void* const* constants);

  // Writes the archive if pipelines were added. A failure is ignored: the next process compiles again.
  void save();

  const Library& library() const { return library_; }

 private:
  Ref<ArchiveObject> open_archive(const std::string& path);
  Ref<PipelineObject> make(const KernelInfo& kernel, const void* const* constants);

  std::mutex mutex_;
  Ref<DeviceObject> device_;
  Library library_;
  std::string archive_path_;  // empty: there is no archive on disk
  Ref<ArchiveObject> archive_;
  bool changed_ = false;
  std::map<std::pair<const KernelInfo*, std::string>, Ref<PipelineObject>> pipelines_;
};

}  // namespace pyturbo::metal
