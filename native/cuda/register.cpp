// Adds the CUDA devices to the devices of this process.
#include "cuda/device.h"

namespace pyturbo::cuda {
namespace {

constexpr uint32_t kMostGpus = 16;

const bool registered = [] {
  for (uint32_t i = 0; i < kMostGpus; ++i) add_device(kind(i));
  return true;
}();

}  // namespace
}  // namespace pyturbo::cuda
