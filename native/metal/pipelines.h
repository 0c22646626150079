// Compiled kernels: each is made once in a process, and once on a machine.
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

// Pipelines by kernel and function constants. On disk they are kept in a binary archive whose name tells the
// library, the device and the build of the system apart; one that cannot be read is made anew, and several
// processes may write it, the last one wins. Owner: the device. Any thread.
class Pipelines {
 public:
  explicit Pipelines(id<MTLDevice> device);

  // Lives as long as this. Throws Error{device} with Metal's own text.
  id<MTLComputePipelineState> get(const KernelInfo& kernel, const void* const* constants);

  // Writes the archive if it has become more. Failing to is no error: the next process compiles again.
  void save();

  const Library& library() const { return library_; }

 private:
  Ref<ArchiveObject> open_archive(const std::string& path);
  Ref<PipelineObject> make(const KernelInfo& kernel, const void* const* constants);

  std::mutex mutex_;
  Ref<DeviceObject> device_;
  Library library_;
  std::string archive_path_;  // empty: nothing is kept
  Ref<ArchiveObject> archive_;
  bool changed_ = false;
  std::map<std::pair<const KernelInfo*, std::string>, Ref<PipelineObject>> pipelines_;
};

}  // namespace pyturbo::metal
