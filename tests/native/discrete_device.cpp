// Each allocation is mapped twice: at its address, where every access of the host is a segmentation fault,
// and at an alias that only this file knows. Kernels are given the alias.
#include "discrete_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "pyturbo/device.h"
#include "pyturbo/error.h"

namespace {

using namespace pyturbo;

constexpr uint64_t kBytes = uint64_t(1) << 30;  // of the memory of a device

[[noreturn]] void refuse(uint64_t bytes) {
  throw Error(ErrorKind::memory, "cannot allocate a buffer of " + std::to_string(bytes) + " bytes");
}

uint8_t* mapped(int file, uint64_t bytes, int protection) {
  void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) refuse(bytes);
  return static_cast<uint8_t*>(data);
}

// The allocations of a device. Owner: the device and each storage. Any thread; one lock.
class Regions : public std::enable_shared_from_this<Regions> {
 public:
  std::shared_ptr<Storage> allocate(uint64_t bytes) {
    const uint64_t length = bytes ? bytes : 1;
    if (bytes > memory().free) refuse(bytes);
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), std::fclose);
    if (!file || ::ftruncate(::fileno(file.get()), off_t(length)) != 0) refuse(bytes);
    const auto region = std::make_shared<Region>(shared_from_this(), length);
    region->data = mapped(::fileno(file.get()), length, PROT_NONE);
    region->alias = mapped(::fileno(file.get()), length, PROT_READ | PROT_WRITE);
    {
      const std::lock_guard lock(mutex_);
      regions_[region->data] = region.get();
    }
    const auto storage =
        std::make_shared<Storage>(region->data, bytes, /*writable=*/true, region, Reach::device);
    storage->attach(this, region);
    return storage;
  }

  DeviceMemory memory() const {
    const std::lock_guard lock(mutex_);
    uint64_t used = 0;
    for (const auto& [address, region] : regions_) used += region->bytes;
    return {kBytes, kBytes - used};
  }

  // Returns where these bytes can be touched; null for host memory.
  uint8_t* alias(const void* address, uint64_t bytes) const {
    const auto* data = static_cast<const uint8_t*>(address);
    const std::lock_guard lock(mutex_);
    auto next = regions_.upper_bound(data);
    if (next == regions_.begin()) return nullptr;
    const Region& region = *std::prev(next)->second;
    const uint64_t offset = uint64_t(data - region.data);
    if (offset >= region.bytes) return nullptr;
    if (bytes > region.bytes - offset) throw Error(ErrorKind::device, "discrete: past the end of its memory");
    return region.alias + offset;
  }

 private:
  struct Region {
    Region(std::shared_ptr<Regions> all, uint64_t bytes) : all(std::move(all)), bytes(bytes) {}
    ~Region() {
      const std::lock_guard lock(all->mutex_);
      all->regions_.erase(data);
      if (data) ::munmap(data, bytes);
      if (alias) ::munmap(alias, bytes);
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    const std::shared_ptr<Regions> all;
    const uint64_t bytes;
    uint8_t *data = nullptr, *alias = nullptr;
  };
  mutable std::mutex mutex_;
  std::map<const uint8_t*, const Region*> regions_;
};

class DiscreteDevice final : public Device {
 public:
  DiscreteDevice(const DeviceKind& kind, const DeviceOptions& options)
      : Device(kind), checked_(options.checked), host_(open_device("cpu:reference", options)) {}
  ~DiscreteDevice() override { close(); }

  std::vector<std::pair<std::string, std::string>> properties() const override { return host_->properties(); }
  std::optional<DeviceMemory> own_memory() override { return regions_->memory(); }
  std::shared_ptr<Storage> allocate(uint64_t bytes) override {
    require_open();
    return regions_->allocate(bytes);
  }
  std::shared_ptr<Storage> allocate_shared(uint64_t bytes) override {
    require_open();
    std::shared_ptr<Storage> storage = allocate_storage(bytes);
    storage->attach(regions_.get(), regions_);
    return storage;
  }
  void read(void* to, const void* from, uint64_t bytes) override {
    std::memcpy(to, inside(from, bytes), bytes);
  }
  void write(void* to, const void* from, uint64_t bytes) override {
    std::memcpy(inside(to, bytes), from, bytes);
  }
  void copy(void* to, const void* from, uint64_t bytes) override {
    std::memmove(inside(to, bytes), inside(from, bytes), bytes);
  }
  void clear(void* to, uint64_t bytes) override { std::memset(inside(to, bytes), 0, bytes); }
  std::pair<int32_t, int32_t> dlpack_device() const override { return {12, 0}; }  // kDLExtDev

 protected:
  bool checked() const override { return checked_; }
  bool owns(const Storage& storage) const override { return storage.attached(regions_.get()) != nullptr; }

  // Host memory is used in place, which stands for copies before and after.
  void run(const ReadyLaunch* launches, size_t count, bool, std::vector<LaunchRun>* runs) override {
    std::vector<Arguments> arguments;
    std::vector<ReadyLaunch> ready(launches, launches + count);
    arguments.reserve(count);
    for (ReadyLaunch& launch : ready) {
      Arguments& bound = arguments.emplace_back(*launch.arguments);
      for (uint32_t i = 0; i < launch.kernel->argument_count; ++i) {
        const ArgumentInfo& info = launch.kernel->arguments[i];
        if (info.kind != ArgumentKind::buffer || !bound.buffers[info.index]) continue;
        if (void* alias = regions_->alias(bound.buffers[info.index], bound.bytes[info.index]))
          bound.buffers[info.index] = alias;
      }
      launch.arguments = &bound;
    }
    Timeline timeline;
    host_->replay(ready, {}, /*wait=*/true, runs ? &timeline : nullptr);
    if (runs) runs->insert(runs->end(), timeline.runs.begin(), timeline.runs.end());
  }

  void release() override { host_->close(); }

 private:
  // Copies of no bytes may begin at the end of memory.
  void* inside(const void* address, uint64_t bytes) const {
    require_open();
    if (bytes == 0) return nullptr;
    void* const alias = regions_->alias(address, bytes);
    if (!alias) throw Error(ErrorKind::device, name() + ": expected its own memory, got host memory");
    return alias;
  }

  const bool checked_;
  const std::shared_ptr<Device> host_;
  const std::shared_ptr<Regions> regions_ = std::make_shared<Regions>();
};

std::unique_ptr<Device> open(const DeviceKind& kind, const DeviceOptions& options) {
  return std::make_unique<DiscreteDevice>(kind, options);
}

}  // namespace

void add_discrete_device() {
  add_device({.name = "discrete",
              .rank = Rank::emulator,
              .traits = {.chunk = 48,
                         .single = 1,
                         .attention_blocks = 8,
                         .chunkwise_tokens = 32,
                         .pass_experts = 2,
                         .host_memory = HostMemory::none},
              .open = open});
}
