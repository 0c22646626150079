// The device of docs/adding-a-device.md: launches run as their shaders, one by one, on the calling thread.
#pragma once

#include <memory>
#include <vector>

#include "pyturbo/device.h"
#include "simt/executor.h"

namespace example {

using namespace pyturbo;

struct CallingThread {
  template <typename Fn>
  void parallel_for(uint64_t count, const Fn& fn) {
    for (uint64_t i = 0; i < count; ++i) fn(i);
  }
};

class SerialDevice final : public Device {
 public:
  using Device::Device;

  std::shared_ptr<Storage> allocate(uint64_t bytes) override { return allocate_storage(bytes); }

 protected:
  void run(const ReadyLaunch* launches, size_t count, bool, std::vector<LaunchRun>* runs) override {
    CallingThread pool;
    for (size_t i = 0; i < count; ++i) {
      require_process();
      const double begin = steady_seconds();
      simt::run_reference(*launches[i].kernel, *launches[i].arguments, launches[i].dispatch, pool);
      if (runs) runs->push_back({i, begin, steady_seconds()});
    }
  }
};

inline std::unique_ptr<Device> open(const DeviceKind& kind, const DeviceOptions&) {
  return std::make_unique<SerialDevice>(kind);
}

inline const DeviceKind kSerial{.name = "serial",
                                .rank = Rank::emulator,
                                .traits = {.chunk = 32,
                                           .single = 16,
                                           .attention_blocks = 8,
                                           .attention_groups = 0,
                                           .product_groups = 0,
                                           .chunkwise_tokens = 32,
                                           .pass_experts = 1,
                                           .bucket_tokens = 2,
                                           .few_tokens = 0,
                                           .top_logits = 0,
                                           .fused = true,
                                           .host_memory = HostMemory::any},
                                .open = open};

}  // namespace example
