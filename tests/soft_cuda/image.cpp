#include "image.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/kernels.h"

namespace soft_cuda {
namespace {

constexpr char kMagic[] = "soft cubin 1";

const pyturbo::KernelInfo* info_of(const std::string& kernel) {
  return pyturbo::kernel_registry().find(kernel, pyturbo::Variant::reference);
}

}  // namespace

std::string image_text(const Image& image) {
  std::string out =
      kMagic + ('\n' + image.kernel) + '\n' + image.architecture + '\n' + std::to_string(image.major) + '\n';
  out += (image.has_form ? image.kernel + "_form" : "") + '\n';
  out += image.fast ? "fast\n" : "default\n";
  for (const auto& [slot, bits] : image.constants)
    out += std::to_string(slot) + ' ' + std::to_string(bits) + '\n';
  return out;
}

bool parse_image(const char* text, Image& image) {
  if (std::strncmp(text, kMagic, sizeof kMagic - 1) != 0) return false;
  const auto line = [&text] {
    const std::string found(text, std::strcspn(text, "\n"));
    text += found.size() + (text[found.size()] == '\n');
    return found;
  };
  line();  // the magic
  image.kernel = line();
  image.architecture = line();
  image.major = std::atoi(line().c_str());
  image.has_form = !line().empty();
  image.fast = line() == "fast";
  while (*text) {
    unsigned slot;
    unsigned long long bits;
    if (std::sscanf(line().c_str(), "%u %llu", &slot, &bits) != 2) return false;
    image.constants[slot] = bits;
  }
  return true;
}

std::shared_ptr<Kernel> kernel_of(const Image& image) {
  const pyturbo::KernelInfo* info = info_of(image.kernel);
  if (!info || !wrong_constants(image).empty()) return nullptr;
  auto kernel = std::make_shared<Kernel>();
  kernel->info = info;
  kernel->values.reserve(image.constants.size());
  for (const auto& [slot, bits] : image.constants) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&bits);
    kernel->values.emplace_back(bytes, bytes + sizeof bits);
    kernel->constants[slot] = kernel->values.back().data();
  }
  return kernel;
}

std::string wrong_constants(const Image& image) {
  const pyturbo::KernelInfo* info = info_of(image.kernel);
  if (!info) return "expected the name of a kernel, got " + image.kernel;
  size_t known = 0;
  for (uint32_t i = 0; i < info->constant_count; ++i) {
    const bool defined = image.constants.contains(info->constants[i].slot);
    known += defined;
    if (!defined && info->constants[i].required)
      return image.kernel + ": expected a value for function constant " + info->constants[i].name;
  }
  if (known != image.constants.size()) return image.kernel + ": expected its own constants, got others";
  return "";
}

}  // namespace soft_cuda
