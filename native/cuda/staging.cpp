#include "cuda/staging.h"

#include "core/staging.h"

namespace pyturbo::cuda {
namespace {

constexpr uint64_t kCopyAlignment = 256;  // of each copy, as of memory that the driver allocates

// Calls `visit` with the address, the bytes and whether it is written, of each argument that Memory does not
// know.
template <typename Visit>
void each_unknown(std::span<const ReadyLaunch> launches, const Memory& memory, const Visit& visit) {
  Memory::Lookup lookup(memory);
  for (const ReadyLaunch& launch : launches) {
    const KernelInfo& kernel = *launch.kernel;
    for (uint32_t i = 0; i < kernel.argument_count; ++i) {
      const ArgumentInfo& info = kernel.arguments[i];
      uint8_t* data = static_cast<uint8_t*>(launch.arguments->buffers[info.index]);
      const uint64_t bytes = launch.arguments->bytes[info.index];
      Address place;
      if (info.kind == ArgumentKind::buffer && data && bytes > 0 && !lookup.find(data, bytes, place))
        visit(data, bytes, info.writable);
    }
  }
}

}  // namespace

bool Staging::needed(std::span<const ReadyLaunch> launches, const Memory& memory) {
  bool found = false;
  each_unknown(launches, memory, [&](uint8_t*, uint64_t, bool) { found = true; });
  return found;
}

Staging::Staging(std::span<const ReadyLaunch> launches, Memory& memory, Stream& stream) : stream_(stream) {
  each_unknown(launches, memory, [&](uint8_t* data, uint64_t bytes, bool writable) {
    copies_.push_back({data, data + bytes, writable, 0});
  });
  if (copies_.empty()) return;

  merge_overlaps(copies_);

  // A copy begins as far from an aligned address as the memory it stands for.
  uint64_t bytes = 0;
  for (Copy& copy : copies_) {
    copy.place = bytes + reinterpret_cast<uintptr_t>(copy.begin) % kCopyAlignment;
    bytes =
        (copy.place + uint64_t(copy.end - copy.begin) + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  }
  storage_ = memory.allocate(bytes);
  for (Copy& copy : copies_) {
    copy.place += reinterpret_cast<uintptr_t>(storage_->data());
    stream.copied(
        "copy of an argument",
        stream.driver().copy_in(copy.place, copy.begin, uint64_t(copy.end - copy.begin), stream.handle()));
  }
}

Address Staging::copy_of(const void* address) const {
  const Copy& copy = copy_at(copies_, address);
  return copy.place + uint64_t(static_cast<const uint8_t*>(address) - copy.begin);
}

void Staging::copy_out() const {
  for (const Copy& copy : copies_)
    if (copy.written)
      stream_.copied("copy of a result",
                     stream_.driver().copy_out(copy.begin, copy.place, uint64_t(copy.end - copy.begin),
                                               stream_.handle()));
  stream_.synchronize();
}

}  // namespace pyturbo::cuda
