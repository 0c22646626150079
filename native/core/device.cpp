#include "pyturbo/device.h"

#include "core/launch.h"
#include "cpu/device.h"
#include "pyturbo/error.h"

namespace pyturbo {

void Device::launch(const KernelInfo& kernel, const Arguments& arguments, const Dispatch* dispatch) {
  Arguments bound = arguments;
  replay(kernel, bound, check_launch(kernel, bound, dispatch));
}

void Device::replay(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch) {
  if (closed()) throw Error(ErrorKind::state, name_ + ": the device is closed");
  if (dispatch.groups.count() > 0) run(kernel, arguments, dispatch);
}

std::vector<std::string> device_names() { return {"cpu", "cpu:reference"}; }

std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options) {
  for (const std::string& known : device_names())
    if (name == known) return cpu::make_device(known, options);
  std::string names;
  for (const std::string& known : device_names()) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorKind::argument, "expected a device among " + names + ", got " + std::string(name));
}

}  // namespace pyturbo
