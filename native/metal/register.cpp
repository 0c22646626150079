// Adds the Metal device to the devices of this process. A build without Metal does not have this file.
#include "metal/device.h"

namespace pyturbo::metal {
namespace {

const RegisteredDevice registered{kind()};

}  // namespace
}  // namespace pyturbo::metal
