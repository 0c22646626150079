#include "checker/checked_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "pyturbo/error.h"
#include "simt/threadgroup.h"

namespace pyturbo::checker {
namespace {

constexpr size_t kPage = 65536;                // a multiple of every host's page size
constexpr size_t kGap = size_t(4) << 30;       // between device slots: most wrong indices stay within it
constexpr size_t kSmallGap = kPage;            // used if the system refuses that much address space
constexpr size_t kThreadgroupPitch = 1 << 20;  // bytes from one threadgroup slot to the next
constexpr size_t kThreadgroupSlots = simt::kMaxThreadgroupVariables + kMaxArguments;
constexpr size_t kSameBits = 256;  // a copy and its original have the same address modulo this

size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

[[noreturn]] void no_memory(size_t bytes) {
  throw Error(ErrorKind::memory, "checked mode: cannot allocate " + std::to_string(bytes) + " bytes");
}

void make_accessible(std::byte* begin, size_t bytes) {
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) no_memory(bytes);
}

bool writable(const Slot& slot) {
  return std::any_of(slot.bindings.begin(), slot.bindings.end(),
                     [](const Binding& b) { return b.argument->writable; });
}

}  // namespace

Mapping::Mapping(size_t bytes, int protection) {
  void* range = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;
  base_ = static_cast<std::byte*>(range);
  bytes_ = bytes;
}

Mapping::~Mapping() {
  if (base_) munmap(base_, bytes_);
}

bool Slot::writable(size_t begin, size_t end) const {
  return threadgroup() || std::any_of(bindings.begin(), bindings.end(), [=](const Binding& b) {
           return b.argument->writable && b.begin <= begin && end <= b.end;
         });
}

CheckedMemory::CheckedMemory(const KernelInfo& info, Arguments& arguments) {
  collect(info, arguments);
  reserve();
  for (const Slot& slot : slots_) {
    std::memcpy(slot.base, slot.original, slot.size);
    for (const Binding& b : slot.bindings) arguments.buffers[b.argument->index] = slot.base + b.begin;
  }
}

// One slot per bound argument; arguments whose bytes overlap share one.
void CheckedMemory::collect(const KernelInfo& info, const Arguments& arguments) {
  for (uint32_t i = 0; i < info.argument_count; ++i) {
    const ArgumentInfo& a = info.arguments[i];
    if (a.kind == ArgumentKind::threadgroup || !arguments.buffers[a.index]) continue;
    size_t bytes = arguments.bytes[a.index];
    if (a.kind == ArgumentKind::value) bytes = std::max<size_t>(bytes, a.size);
    auto* data = static_cast<std::byte*>(arguments.buffers[a.index]);
    slots_.push_back({nullptr, bytes, data, nullptr, {{&a, 0, bytes}}, nullptr});
  }
  std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
    return std::pair(a.original, a.bindings[0].argument) < std::pair(b.original, b.bindings[0].argument);
  });
  size_t count = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (count && slots_[i].original < slots_[count - 1].original + slots_[count - 1].size) {
      Slot& into = slots_[count - 1];
      const size_t begin = size_t(slots_[i].original - into.original);
      into.bindings.push_back({slots_[i].bindings[0].argument, begin, begin + slots_[i].size});
      into.size = std::max(into.size, begin + slots_[i].size);
    } else {
      if (count != i) slots_[count] = std::move(slots_[i]);
      ++count;
    }
  }
  slots_.resize(count);
  device_slots_ = count;
  slots_.reserve(count + kThreadgroupSlots);
}

bool CheckedMemory::map_range(size_t gap) {
  size_t bytes = gap + kThreadgroupSlots * kThreadgroupPitch;
  for (const Slot& slot : slots_) bytes += round_up(slot.size + kSameBits) + gap;
  arena_ = Mapping(bytes, PROT_NONE);
  if (!arena_.base()) return false;
  std::byte* next = arena_.base() + gap;
  for (Slot& slot : slots_) {
    slot.base = next + reinterpret_cast<uintptr_t>(slot.original) % kSameBits;
    next += round_up(slot.size + kSameBits) + gap;
  }
  threadgroup_base_ = next;
  return true;
}

void CheckedMemory::reserve() {
  if (!map_range(kGap) && !map_range(kSmallGap)) {
    size_t bytes = 0;
    for (const Slot& slot : slots_) bytes += slot.size;
    no_memory(bytes);
  }
  make_accessible(threadgroup_base_, kThreadgroupSlots * kThreadgroupPitch);
  size_t cells = kThreadgroupSlots * kMaxThreadgroupBytes;
  for (Slot& slot : slots_) {
    make_accessible(slot.base - reinterpret_cast<uintptr_t>(slot.original) % kSameBits,
                    round_up(slot.size + kSameBits));
    if (checker::writable(slot)) cells += slot.size;
  }
  shadow_ = Mapping(cells * sizeof(Cell), PROT_READ | PROT_WRITE);
  if (!shadow_.base()) no_memory(cells * sizeof(Cell));
  threadgroup_shadow_ = reinterpret_cast<Cell*>(shadow_.base());
  Cell* next = threadgroup_shadow_ + kThreadgroupSlots * kMaxThreadgroupBytes;
  for (Slot& slot : slots_) {
    if (!checker::writable(slot)) continue;
    slot.shadow = next;
    next += slot.size;
  }
}

void CheckedMemory::copy_back() const {
  for (size_t i = 0; i < device_slots_; ++i) {
    const Slot& slot = slots_[i];
    for (const Binding& b : slot.bindings) {
      if (!b.argument->writable) continue;
      for (size_t byte = b.begin; byte < b.end; ++byte)
        if (slot.shadow[byte].writer.epoch) slot.original[byte] = slot.base[byte];
    }
  }
}

void CheckedMemory::begin_group() {
  slots_.resize(device_slots_);
  last_ = 0;
}

void* CheckedMemory::place(size_t size, const char* name) {
  const size_t number = slots_.size() - device_slots_;
  std::byte* base = threadgroup_base_ + number * kThreadgroupPitch;
  Cell* shadow = threadgroup_shadow_ + number * kMaxThreadgroupBytes;
  slots_.push_back({base, size, nullptr, name, {}, shadow});
  return base;
}

const Slot* CheckedMemory::find(const std::byte* address) {
  const auto holds = [=](const Slot& slot) { return size_t(address - slot.base) < slot.size; };
  if (last_ < slots_.size() && holds(slots_[last_])) return &slots_[last_];
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!holds(slots_[i])) continue;
    last_ = i;
    return &slots_[i];
  }
  return nullptr;
}

const Slot* CheckedMemory::nearest(const std::byte* address) const {
  const Slot* best = nullptr;
  uint64_t least = ~uint64_t(0);
  for (const Slot& slot : slots_) {
    const std::byte* end = slot.base + slot.size;
    const uint64_t distance = address < slot.base ? uint64_t(slot.base - address)
                              : address < end     ? 0
                                                  : uint64_t(address - end) + 1;
    if (distance < least) {
      least = distance;
      best = &slot;
    }
  }
  return best;
}

}  // namespace pyturbo::checker
