#include "cpu/device.h"

#include <algorithm>
#include <thread>

#include "core/registry.h"
#include "cpu/checker.h"
#include "cpu/executor.h"
#include "cpu/pool.h"
#include "pyturbo/error.h"

namespace pyturbo::cpu {
namespace {

// The names that share the longest beginning with `name`, for the message of a failed look-up.
std::string near_names(std::string_view name) {
  size_t best = 0;
  std::string near;
  for (const std::string& known : registry().names()) {
    const size_t common =
        size_t(std::mismatch(name.begin(), name.end(), known.begin(), known.end()).first - name.begin());
    if (common > best) {
      best = common;
      near.clear();
    }
    if (common == best && best > 0 && near.size() < 120) near += (near.empty() ? "" : ", ") + known;
  }
  return near;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(const std::string& name, const DeviceOptions& options)
      : Device(name),
        checked_(options.checked),
        pool_(options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency())) {}

  const KernelInfo& kernel(std::string_view name) const override {
    if (const KernelInfo* kernel = registry().find(name, checked_ ? Variant::checked : Variant::reference))
      return *kernel;
    const std::string near = near_names(name);
    throw Error(ErrorKind::argument, "expected the name of a kernel, got " + std::string(name) +
                                         (near.empty() ? "" : "; there are " + near));
  }

  std::shared_ptr<Storage> allocate(uint64_t bytes) override { return allocate_storage(bytes); }

 protected:
  void run(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch) override {
    if (checked_)
      run_checked(kernel, arguments, dispatch);
    else
      run_reference(kernel, arguments, dispatch, pool_);
  }

 private:
  const bool checked_;
  ThreadPool pool_;
};

}  // namespace

std::shared_ptr<Device> make_device(const std::string& name, const DeviceOptions& options) {
  return std::make_shared<CpuDevice>(name, options);
}

}  // namespace pyturbo::cpu
