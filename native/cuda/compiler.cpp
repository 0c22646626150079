#include "cuda/compiler.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/cache_folder.h"
#include "core/kernels.h"
#include "pyturbo/error.h"

namespace pyturbo::cuda {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".cubin";
constexpr char kHopper[] = "sm_90";
constexpr int kFirstThatWaits = 90;  // as invoke::begin of kernels

constexpr char kMagic[] = "pyturbo cubin 1\n";  // before an image on disk, with its hash

std::string read(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) return {};
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// FNV-1a. It distinguishes versions and gives no protection against attacks.
uint64_t fnv(const char* bytes, size_t count, uint64_t hash) {
  for (size_t i = 0; i < count; ++i) hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3;
  return hash;
}

// Two hashes with different seeds, of texts one after the other.
class Hash {
 public:
  void add(const std::string& text) {
    for (uint64_t& part : parts_) part = fnv(text.c_str(), text.size() + 1, part);
  }
  std::string hex() const {
    char out[33];
    std::snprintf(out, sizeof out, "%016llx%016llx", static_cast<unsigned long long>(parts_[0]),
                  static_cast<unsigned long long>(parts_[1]));
    return out;
  }

 private:
  uint64_t parts_[2] = {0xcbf29ce484222325, 0x84222325cbf29ce4};
};

uint64_t hash_of(const std::vector<char>& image) {
  return fnv(image.data(), image.size(), 0xcbf29ce484222325);
}

// Returns an image on disk, or nothing where there is none, or a damaged one.
std::vector<char> stored(const std::string& path) {
  const std::string file = read(path);
  constexpr size_t kHead = sizeof kMagic - 1 + sizeof(uint64_t);
  if (file.size() <= kHead || file.compare(0, sizeof kMagic - 1, kMagic) != 0) return {};
  std::vector<char> image(file.begin() + kHead, file.end());
  uint64_t hash;
  std::memcpy(&hash, file.data() + sizeof kMagic - 1, sizeof hash);
  if (hash != hash_of(image)) image.clear();
  return image;
}

// Writes an image, or nothing where that fails: it is then compiled again.
void store(const std::string& path, const std::vector<char>& image) {
  std::error_code failed;
  const fs::path folder = fs::path(path).parent_path();
  fs::create_directories(folder, failed);
  const std::string temporary = temporary_path(path);
  {
    std::ofstream file(temporary, std::ios::binary);
    const uint64_t hash = hash_of(image);
    file.write(kMagic, sizeof kMagic - 1);
    file.write(reinterpret_cast<const char*>(&hash), sizeof hash);
    file.write(image.data(), std::streamsize(image.size()));
    file.close();
    if (file) fs::rename(temporary, path, failed);
  }
  fs::remove(temporary, failed);
}

// Returns the bits of a constant as a number.
std::string bits(const ConstantInfo& info, const void* value) {
  uint64_t number = 0;
  std::memcpy(&number, value, std::min<size_t>(info.size, sizeof number));
  return std::to_string(number) + (info.size > 4 ? "ull" : "u");
}

// Owns a program of NVRTC.
struct NvrtcProgram {
  explicit NvrtcProgram(const Nvrtc& nvrtc) : nvrtc(nvrtc) {}
  ~NvrtcProgram() {
    if (handle) nvrtc.destroy(&handle);
  }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  const Nvrtc& nvrtc;
  ProgramHandle handle = nullptr;
};

}  // namespace

Compiler::Compiler(int capability, Precision precision)
    : nvrtc_([]() -> const Nvrtc& {
        const OpenedNvrtc& opened = opened_nvrtc();
        if (!opened.nvrtc) throw Error(ErrorKind::device, "cuda: " + opened.missing);
        return *opened.nvrtc;
      }()),
      precision_(precision),
      folder_((fs::path(kernels_folder()) / "shaders").string()) {
  std::error_code failed;
  if (!fs::is_directory(folder_, failed))
    throw Error(ErrorKind::device, "cuda: expected the kernels in " + folder_ + ", found none");
  stdlib_ = read(fs::path(folder_) / "metal_stdlib.cuh");

  int count = 0;
  nvrtc_.arch_count(&count);
  std::vector<int> known(size_t(std::max(0, count)));
  if (count > 0) nvrtc_.archs(known.data());
  int best = 0;
  for (const int arch : known)
    if (arch <= capability) best = std::max(best, arch);
  if (best == 0)
    throw Error(ErrorKind::device,
                "cuda: NVRTC " + version() + " cannot compile for a GPU of compute capability " +
                    std::to_string(capability / 10) + "." + std::to_string(capability % 10));
  kernels_wait_ = best >= kFirstThatWaits;
  architecture_ = (best == capability ? "sm_" : "compute_") + std::to_string(best);
  if (architecture_ == kHopper) architecture_ += "a";  // with the instructions that no other GPU has
  if (const std::string cache = cache_folder(); !cache.empty()) {
    cache_ = (fs::path(cache) / "cuda").string();
    remove_leftovers(cache_, kSuffix);
  }
}

std::string Compiler::version() const {
  int major = 0, minor = 0;
  nvrtc_.version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

const Compiler::Text& Compiler::text_of(const KernelInfo& kernel) {
  std::string file = kernel.file;  // "norm/rms_norm.metal"
  std::replace_if(file.begin(), file.end(), [](char c) { return c == '/' || c == '-'; }, '_');
  const std::string name = fs::path(file).replace_extension(".cu").string();
  const std::lock_guard lock(mutex_);
  auto known = texts_.find(name);
  if (known == texts_.end()) {
    const std::string path = folder_ + "/" + name;
    std::string text = read(path);
    if (text.empty()) throw Error(ErrorKind::device, path + ": expected the text of a kernel, found none");
    known = texts_.emplace(name, Text{name, std::move(text)}).first;
  }
  return known->second;
}

// Contraction is off, as in the reference kernels.
std::vector<std::string> Compiler::options(const KernelInfo& kernel, const void* const* constants) const {
  std::vector<std::string> options = {"-std=c++20", "-default-device", "-fmad=false",
                                      "-arch=" + architecture_, std::string("-DPT_INSTANCE_") + kernel.name};
  if (architecture_.starts_with("compute_")) options.push_back("-DPT_PORTABLE");
  if (precision_ == Precision::fast) options.push_back("-DPT_FAST");
  for (uint32_t i = 0; i < kernel.constant_count; ++i) {
    const ConstantInfo& info = kernel.constants[i];
    if (!constants[info.slot]) continue;
    const std::string slot = std::to_string(info.slot);
    options.push_back("-DPT_C" + slot + "=" + bits(info, constants[info.slot]));
  }
  return options;
}

std::string Compiler::cached_path(const Text& text, const std::vector<std::string>& options) const {
  Hash hash;
  hash.add(version());
  hash.add(stdlib_);
  hash.add(text.text);
  for (const std::string& option : options) hash.add(option);
  return cache_ + "/" + hash.hex() + kSuffix;
}

std::vector<char> Compiler::image(const KernelInfo& kernel, const void* const* constants) {
  const Text& text = text_of(kernel);
  const std::vector<std::string> options = this->options(kernel, constants);
  if (cache_.empty()) return compile(kernel, text, options);
  const std::string path = cached_path(text, options);
  std::vector<char> image = stored(path);
  if (!image.empty()) return image;
  image = compile(kernel, text, options);
  store(path, image);
  return image;
}

std::vector<char> Compiler::compile(const KernelInfo& kernel, const Text& text,
                                    const std::vector<std::string>& options) const {
  const auto require = [&](int result) {
    if (result != 0)
      throw Error(ErrorKind::device,
                  std::string(kernel.name) + ": NVRTC failed: " + nvrtc_.error_string(result));
  };
  const char *const header = stdlib_.c_str(), *const name = "metal_stdlib";
  std::vector<const char*> flags;
  for (const std::string& option : options) flags.push_back(option.c_str());
  NvrtcProgram program(nvrtc_);
  require(nvrtc_.create(&program.handle, text.text.c_str(), text.name.c_str(), 1, &header, &name));
  if (const int result = nvrtc_.compile(program.handle, int(flags.size()), flags.data()); result != 0) {
    size_t bytes = 0;
    nvrtc_.log_size(program.handle, &bytes);
    std::string log(bytes, '\0');
    if (bytes > 0) nvrtc_.log(program.handle, log.data());
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    throw Error(ErrorKind::device, std::string(kernel.name) + ": NVRTC cannot compile it: " +
                                       (log.empty() ? nvrtc_.error_string(result) : log));
  }
  const bool binary = architecture_.starts_with("sm_");
  size_t bytes = 0;
  require(binary ? nvrtc_.cubin_size(program.handle, &bytes) : nvrtc_.ptx_size(program.handle, &bytes));
  std::vector<char> image(bytes);
  require(binary ? nvrtc_.cubin(program.handle, image.data()) : nvrtc_.ptx(program.handle, image.data()));
  return image;
}

}  // namespace pyturbo::cuda
