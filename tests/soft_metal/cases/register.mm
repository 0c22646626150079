// Adds the Metal device over soft Metal to the devices of this process, after all others: it is slower than
// them.
#include "metal/device.h"

namespace {

pyturbo::DeviceKind emulated() {
  pyturbo::DeviceKind kind = pyturbo::metal::kind();
  kind.rank = pyturbo::Rank::emulator;
  kind.available = nullptr;  // soft Metal is always there, and would count the device that is made to ask
  return kind;
}

const pyturbo::RegisteredDevice registered{emulated()};

}  // namespace
