#include "metal/gates.h"

#include <algorithm>

#include "core/launch.h"

namespace pyturbo::metal {
namespace {

constexpr uint64_t kHeaderBytes = 16;  // in front of the numbers of threadgroups

}  // namespace

uint64_t Gates::bytes(size_t launches) {
  const size_t bound = std::max<size_t>(launches, 1);  // no argument may be empty
  return kHeaderBytes + bound * sizeof(MTLDispatchThreadgroupsIndirectArguments);
}

Gates::Gates(std::span<const ReadyLaunch> launches, std::span<const ReadyLoop> loops,
             const KernelInfo& kernel, std::shared_ptr<Storage> storage)
    : launches_(launches),
      loops_(loops),
      kernel_(kernel),
      storage_(std::move(storage)),
      passed_(reinterpret_cast<uint32_t*>(storage_->data())),
      groups_(reinterpret_cast<uint32_t*>(storage_->data() + kHeaderBytes)) {}

void Gates::open(size_t first) {
  *passed_ = uint32_t(first);
  const size_t begin = first == 0 ? 0 : loops_[first - 1].end;
  for (size_t i = begin; i < launches_.size(); ++i) {
    const Extent& groups = launches_[i].dispatch.groups;
    const uint32_t words[] = {groups.x, groups.y, groups.z};
    std::copy_n(words, 3, groups_ + 3 * i);
  }
}

ReadyLaunch Gates::launch(size_t loop) {
  const size_t end = loop + 1 < loops_.size() ? loops_[loop + 1].end : launches_.size();
  values_[0] = uint32_t(loop);
  values_[1] = uint32_t(loops_[loop].end);
  values_[2] = uint32_t(end);
  arguments_ = {};
  const auto bind = [&](uint32_t index, const void* data, uint64_t bytes) {
    arguments_.buffers[index] = const_cast<void*>(data);
    arguments_.bytes[index] = bytes;
  };
  bind(0, loops_[loop].host->missing(), sizeof(uint32_t));
  bind(1, passed_, sizeof(uint32_t));
  bind(2, groups_, bytes(launches_.size()) - kHeaderBytes);
  for (uint32_t i = 0; i < 3; ++i) bind(3 + i, &values_[i], sizeof(uint32_t));
  const Dispatch dispatch = check_launch(kernel_, arguments_, nullptr);
  return {&kernel_, &arguments_, dispatch, /*waits=*/true, ""};
}

}  // namespace pyturbo::metal
