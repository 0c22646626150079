// Adds the CUDA device to the devices of this process.
#include "cuda/device.h"

namespace pyturbo::cuda {
namespace {

const RegisteredDevice registered{kind()};

}  // namespace
}  // namespace pyturbo::cuda
