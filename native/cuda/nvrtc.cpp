#include "cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/kernels.h"
#include "cuda/driver.h"

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

constexpr int kOldestMajor = 12;

struct Candidate {
  std::string path;  // or a name that the system looks up
  int major;         // as the path says
};

// Adds those of the libraries libnvrtc.so.<major> in a folder that exist.
void add_from(const fs::path& folder, int newest, std::vector<Candidate>& found) {
  for (int major = newest; major >= kOldestMajor; --major) {
    const fs::path file = folder / ("libnvrtc.so." + std::to_string(major));
    if (std::error_code failed; fs::exists(file, failed)) found.push_back({file.string(), major});
  }
}

// Calls `visit` with each folder in a folder.
template <typename Visit>
void each_folder(const fs::path& folder, const Visit& visit) {
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    visit(entry->path());
}

// Returns where the library may be, the newest first, and of equal ones those of packages first:
// nvidia-cuda-nvrtc (in nvidia/cu13) and nvidia-cuda-nvrtc-cu12 (in nvidia/cuda_nvrtc) are beside this one.
std::vector<Candidate> candidates(int newest) {
  std::vector<Candidate> found;
  each_folder(fs::path(kernels_folder()).parent_path() / "nvidia",
              [&](const fs::path& package) { add_from(package / "lib", newest, found); });
  for (int major = newest; major >= kOldestMajor; --major)
    found.push_back({"libnvrtc.so." + std::to_string(major), major});
  each_folder("/usr/local", [&](const fs::path& folder) {
    if (folder.filename().string().starts_with("cuda")) add_from(folder / "lib64", newest, found);
  });
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.major > b.major; });
  return found;
}

// Returns the version that a driver supports, as "13.0".
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Returns the name of the package with a library of this major version.
std::string package_of(int major) {
  return major > kOldestMajor ? "\"nvidia-cuda-nvrtc==" + std::to_string(major) + ".*\""
                              : "nvidia-cuda-nvrtc-cu12";
}

OpenedNvrtc open_nvrtc() {
  static Nvrtc nvrtc;
  int supported = 0;
  if (const Driver* driver = opened_driver().driver) driver->driver_version(&supported);
  const int newest = supported / 1000;
  std::vector<Candidate> tried;
  if (const char* named = std::getenv("PYTURBO_NVRTC"); named && *named)
    tried = {{named, 0}};
  else
    tried = candidates(newest);
  std::string why;
  for (const Candidate& candidate : tried) {
    void* const library = ::dlopen(candidate.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string refused = library ? fill(nvrtc, library, candidate.path) : ::dlerror();
    if (refused.empty()) {
      int major = 0, minor = 0;
      nvrtc.version(&major, &minor);
      if (major <= newest) return {&nvrtc, "", candidate.path};
      refused = candidate.path + " is of CUDA " + std::to_string(major) + "." + std::to_string(minor);
    }
    if (library) ::dlclose(library);
    if (why.empty()) why = std::move(refused);
  }
  return {nullptr,
          "there is no NVRTC, which compiles the kernels, for this driver of CUDA " +
              version_text(supported) + " (pip install " + package_of(newest) + "): " + why,
          ""};
}

}  // namespace

const OpenedNvrtc& opened_nvrtc() {
  static const OpenedNvrtc& opened = *new OpenedNvrtc(open_nvrtc());
  return opened;
}

}  // namespace pyturbo::cuda
