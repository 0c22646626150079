#include "metal/staging.h"

#include <cstring>

#include "core/staging.h"

namespace pyturbo::metal {

Staging::Staging(const ReadyLaunch* launches, size_t count, Memory& memory) {
  for (size_t i = 0; i < count; ++i) {
    const KernelInfo& kernel = *launches[i].kernel;
    for (uint32_t j = 0; j < kernel.argument_count; ++j) {
      const ArgumentInfo& info = kernel.arguments[j];
      uint8_t* data = static_cast<uint8_t*>(launches[i].arguments->buffers[info.index]);
      const uint64_t bytes = launches[i].arguments->bytes[info.index];
      Place place;
      if (info.kind != ArgumentKind::buffer || !data || bytes == 0) continue;
      const ArgumentName name{launches[i].label, kernel.name, info.name};
      if (memory.find(data, bytes, name, place)) continue;
      if (bytes > memory.longest()) memory.refuse_length(bytes, name);
      copies_.push_back({data, data + bytes, info.writable, nullptr});
    }
  }
  if (copies_.empty()) return;

  merge_overlaps(copies_);
  for (Copy& copy : copies_) {
    const uint64_t bytes = uint64_t(copy.end - copy.begin);
    copy.storage = allocate_storage(bytes);
    memory.use(*copy.storage, /*lasting=*/false);
    std::memcpy(copy.storage->data(), copy.begin, bytes);
  }
}

const uint8_t* Staging::copy_of(const void* address) const {
  const Copy& copy = copy_at(copies_, address);
  return copy.storage->data() + (static_cast<const uint8_t*>(address) - copy.begin);
}

void Staging::copy_out() const {
  for (const Copy& copy : copies_)
    if (copy.written) std::memcpy(copy.begin, copy.storage->data(), uint64_t(copy.end - copy.begin));
}

}  // namespace pyturbo::metal
