// What soft CUDA's NVRTC compiles kernels to: their name, architecture, precision and constants, as text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "launch.h"

namespace soft_cuda {

struct Image {
  std::string kernel;
  std::string architecture;                // "sm_90a"
  int major = 13;                          // version of the compiler
  bool has_form = false;                   // says how its form divides the work
  bool fast = false;                       // of fast precision
  std::map<uint32_t, uint64_t> constants;  // bits by slot
};

std::string image_text(const Image& image);

// False for anything else than such a text.
bool parse_image(const char* text, Image& image);

// The reference kernel with these constants; null when there is none.
std::shared_ptr<Kernel> kernel_of(const Image& image);

// What is wrong with the constants of a kernel; empty when nothing is.
std::string wrong_constants(const Image& image);

}  // namespace soft_cuda
