// The kernels of launches, each with its function constants, as devices that compile them need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/at_once.h"
#include "core/kernels.h"
#include "pyturbo/device.h"

namespace pyturbo {

// Identifies a kernel and the values of its function constants.
using InstanceKey = std::pair<const KernelInfo*, std::string>;

inline InstanceKey instance_key(const KernelInfo& kernel, const void* const* constants) {
  return {&kernel, constants_key(kernel, constants)};
}

struct Instance {
  InstanceKey key;
  const void* const* constants;
};

// Returns the instances that launches use, each once, except those for which known(key) is true.
template <typename Known>
std::vector<Instance> unknown_instances(std::span<const ReadyLaunch> launches, const Known& known) {
  std::map<InstanceKey, const void* const*> wanted;
  for (const ReadyLaunch& launch : launches) {
    InstanceKey key = instance_key(*launch.kernel, launch.arguments->constants);
    if (!known(key)) wanted.emplace(std::move(key), launch.arguments->constants);
  }
  std::vector<Instance> list;
  for (const auto& [key, constants] : wanted) list.push_back({key, constants});
  return list;
}

// Calls make(i, instance) for each instance, on as many threads as there are cores, and after each of them
// progress(done, total), one at a time. Rethrows the first exception.
template <typename Make>
void make_instances(const std::vector<Instance>& instances,
                    const std::function<void(uint64_t done, uint64_t total)>& progress, const Make& make) {
  std::mutex counting;  // guards `done`
  uint64_t done = 0;
  at_once(std::thread::hardware_concurrency(), instances.size(), [&](size_t i) {
    make(i, instances[i]);
    const std::lock_guard lock(counting);
    progress(++done, instances.size());
  });
}

}  // namespace pyturbo
