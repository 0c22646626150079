#include "cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/kernels.h"

namespace pyturbo::cuda {
namespace {

namespace fs = std::filesystem;

std::string fill(Nvrtc& nvrtc, void* library, const std::string& name) {
#define PYTURBO_NVRTC_LOOKUP(result, member, symbol, parameters)                      \
  nvrtc.member = reinterpret_cast<decltype(nvrtc.member)>(::dlsym(library, #symbol)); \
  if (!nvrtc.member) return name + " has no " #symbol ": expected NVRTC of CUDA 12 or newer";
  PYTURBO_NVRTC_FUNCTIONS(PYTURBO_NVRTC_LOOKUP)
#undef PYTURBO_NVRTC_LOOKUP
  return "";
}

// Returns the libraries that the packages nvidia-cuda-nvrtc (in nvidia/cu13) and nvidia-cuda-nvrtc-cu12 (in
// nvidia/cuda_nvrtc) have installed beside this one, the newest first.
std::vector<std::string> packaged() {
  std::vector<std::string> found;
  std::error_code failed;
  const fs::path packages = fs::path(own_folder()).parent_path() / "nvidia";
  for (fs::directory_iterator entry(packages, failed), end; !failed && entry != end; entry.increment(failed))
    for (const char* version : {"14", "13", "12"}) {
      const fs::path file = entry->path() / "lib" / (std::string("libnvrtc.so.") + version);
      if (std::error_code ignored; fs::exists(file, ignored)) found.push_back(file.string());
    }
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return fs::path(a).extension() > fs::path(b).extension();
  });
  return found;
}

OpenedNvrtc open() {
  static Nvrtc nvrtc;
  std::vector<std::string> names;
  if (const char* named = std::getenv("PYTURBO_NVRTC"); named && *named) {
    names = {named};
  } else {
    names = packaged();
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"})
      names.emplace_back(name);
  }
  std::string missing;
  for (const std::string& name : names) {
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string why = library ? fill(nvrtc, library, name) : ::dlerror();
    if (why.empty()) return {&nvrtc, "", name};
    if (missing.empty()) missing = why;
  }
  return {
      nullptr,
      "NVRTC, which compiles the kernels, cannot be opened (pip install \"pyturbo-llm[cuda]\"): " + missing,
      ""};
}

}  // namespace

std::string own_folder() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&kernel_registry), &info);
  return info.dli_fname ? fs::path(info.dli_fname).parent_path().string() : "";
}

const OpenedNvrtc& opened_nvrtc() {
  static const OpenedNvrtc& opened = *new OpenedNvrtc(open());
  return opened;
}

}  // namespace pyturbo::cuda
