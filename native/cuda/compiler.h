// Kernels as images that the driver loads: compiled by NVRTC, and kept on disk.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/nvrtc.h"
#include "pyturbo/device_kind.h"
#include "pyturbo/kernel.h"

namespace pyturbo::cuda {

// Compiles instances of the texts in shaders/ beside this library. An image on disk is named by a hash of the
// text, the library of headers, the options and the version of NVRTC. Owner: the modules of a device. Any
// thread, several at once; the lock is for texts.
class Compiler {
 public:
  // `capability` is that of the GPU: 90 for 9.0. Throws Error{device} where NVRTC or the texts are missing.
  Compiler(int capability, Precision precision);

  // Returns the image of an instance, from disk where it is there. Throws Error{device} with NVRTC's
  // messages.
  std::vector<char> image(const KernelInfo& kernel, const void* const* constants);

  // Returns where texts come from.
  const std::string& path() const { return folder_; }
  const std::string& architecture() const { return architecture_; }
  // Returns whether kernels wait for the launches that theirs depends on.
  bool kernels_wait() const { return kernels_wait_; }
  std::string version() const;

 private:
  struct Text {
    std::string name;
    std::string text;
  };

  const Text& text_of(const KernelInfo& kernel);
  std::vector<std::string> options(const KernelInfo& kernel, const void* const* constants) const;
  std::string cached_path(const Text& text, const std::vector<std::string>& options) const;
  std::vector<char> compile(const KernelInfo& kernel, const Text& text,
                            const std::vector<std::string>& options) const;

  const Nvrtc& nvrtc_;
  const Precision precision_;
  std::string folder_;        // of texts
  std::string cache_;         // folder of images; empty: none are kept
  std::string architecture_;  // "sm_90a", or "compute_90" where the GPU is newer than NVRTC
  bool kernels_wait_ = false;
  std::string stdlib_;  // the text of <metal_stdlib>
  std::mutex mutex_;
  std::map<std::string, Text> texts_;  // by file
};

}  // namespace pyturbo::cuda
