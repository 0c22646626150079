// The source of kernels: the metallib beside this library, else the shader sources beside it.
#pragma once

#import <Metal/Metal.h>

#include <map>
#include <mutex>
#include <string>

#include "metal/object.h"
#include "pyturbo/device_kind.h"
#include "pyturbo/kernel.h"

namespace pyturbo::metal {

// Owner: the pipelines of a device. Any thread; one lock for the table of sources, and one for each of them,
// which is held while it is compiled.
class Library {
 public:
  // Throws an Error{device} that names the paths tried when there is neither.
  Library(id<MTLDevice> device, Precision precision);

  // Returns the function with its constants, and with those that the precision of the device sets. Throws
  // Error{device} with Metal's message.
  Ref<FunctionObject> function(const KernelInfo& kernel, const void* const* constants);

  // Returns a hash of the metallib, or of the sources and their names.
  const std::string& hash() const { return hash_; }
  // Returns the file or folder that functions come from.
  const std::string& path() const { return path_; }

 private:
  struct Source {
    std::mutex mutex;
    Ref<LibraryObject> library;  // none: not compiled yet
  };

  id<MTLLibrary> library_of(const KernelInfo& kernel);
  Ref<LibraryObject> compile(const std::string& path);

  Ref<DeviceObject> device_;
  const Precision precision_;
  std::string path_;
  std::string hash_;
  Ref<LibraryObject> metallib_;
  std::mutex mutex_;                       // guards the table, not its entries
  std::map<std::string, Source> sources_;  // by shader file, where there is no metallib
};

}  // namespace pyturbo::metal
