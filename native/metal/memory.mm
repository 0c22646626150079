#include "metal/memory.h"

#include <algorithm>

#include "pyturbo/error.h"

namespace pyturbo::metal {
namespace {

uintptr_t page_floor(uintptr_t address) { return address / kPageBytes * kPageBytes; }
uintptr_t page_ceil(uintptr_t address) { return page_floor(address + kPageBytes - 1); }

}  // namespace

struct Memory::Use {
  Use(std::shared_ptr<Memory> memory, uintptr_t begin) : memory(std::move(memory)), begin(begin) {}
  ~Use() { memory->forget(begin); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  const std::shared_ptr<Memory> memory;
  const uintptr_t begin;
};

Memory::Memory(id<MTLDevice> device, std::shared_ptr<Residency> residency, std::shared_ptr<Flight> flight,
               std::shared_ptr<Expected> expected)
    : device_(Ref<DeviceObject>::retain(device)),
      residency_(std::move(residency)),
      flight_(std::move(flight)),
      expected_(std::move(expected)),
      longest_(page_floor([device maxBufferLength])),
      working_set_([device recommendedMaxWorkingSetSize]) {}

void Memory::use(Storage& storage, bool lasting) {
  if (storage.bytes() == 0 || storage.attached(this)) return;
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  const Region region{
      page_floor(address), page_ceil(address + storage.bytes()), storage.writable(), lasting, {}};
  {
    const std::lock_guard lock(mutex_);
    const auto place =
        std::lower_bound(regions_.begin(), regions_.end(), region.begin,
                         [](const Region& known, uintptr_t begin) { return known.begin < begin; });
    if (place != regions_.end() && place->begin == region.begin) return;  // another thread was faster
    regions_.insert(place, region);
  }
  storage.attach(this, std::make_shared<Use>(shared_from_this(), region.begin));
}

bool Memory::aliased() {
  const std::lock_guard lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(),
                     [](const Region& region) { return region.writable && region.windows.size() > 1; });
}

void Memory::close() {
  flight_->wait_all();
  expected_->drop_all();
  const std::lock_guard lock(mutex_);
  regions_.clear();
  residency_.reset();
  device_ = {};
}

void Memory::forget(uintptr_t begin) {
  const Pool pool;
  flight_->wait_all();
  expected_->drop_all();
  std::shared_ptr<Residency> residency;  // used without the lock: it may wait
  std::vector<Window> windows;
  {
    const std::lock_guard lock(mutex_);
    const auto region = std::find_if(regions_.begin(), regions_.end(),
                                     [&](const Region& known) { return known.begin == begin; });
    if (region == regions_.end()) return;
    ++version_;
    if (region->lasting) residency = residency_;
    windows = std::move(region->windows);
    regions_.erase(region);
  }
  for (const Window& window : windows)
    if (residency) residency->remove(window.buffer.get());
}

bool Memory::find(const void* pointer, uint64_t bytes, const ArgumentName& name, Place& place) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  if (!device_) throw Error(ErrorKind::state, name.text() + ": the device is closed");
  auto region = std::upper_bound(regions_.begin(), regions_.end(), address,
                                 [](uintptr_t a, const Region& known) { return a < known.begin; });
  if (region == regions_.begin() || address + bytes > (--region)->end) return false;
  for (const Window& window : region->windows)
    if (address >= window.begin && address + bytes <= window.begin + window.bytes) {
      place = {window.buffer.get(), address - window.begin};
      return true;
    }
  const Window& window = open_window(*region, address, bytes, name);
  place = {window.buffer.get(), address - window.begin};
  return true;
}

void Memory::refuse_length(uint64_t bytes, const ArgumentName& name) const {
  throw Error(ErrorKind::device, name.text() + ": expected at most " + std::to_string(longest()) +
                                     " bytes, the longest this device can bind, got " +
                                     std::to_string(bytes));
}

// A region that fits into one buffer gets one. In a longer region windows begin at multiples of half the
// longest length; an argument that fits into none of them gets a window that begins at its own page.
Memory::Window& Memory::open_window(Region& region, uintptr_t address, uint64_t bytes,
                                    const ArgumentName& name) {
  uintptr_t begin = region.begin;
  if (region.end - region.begin > longest_) {
    const uint64_t half = std::max<uint64_t>(kPageBytes, page_floor(longest_ / 2));
    begin += (address - region.begin) / half * half;
    if (address + bytes > begin + longest_) begin = page_floor(address);
  }
  const uint64_t length = std::min<uint64_t>(region.end - begin, longest_);
  if (address + bytes > begin + length) refuse_length(bytes, name);
  auto buffer =
      Ref<BufferObject>::adopt([device_.get() newBufferWithBytesNoCopy:reinterpret_cast<void*>(begin)
                                                                length:length
                                                               options:MTLResourceStorageModeShared
                                                           deallocator:nil]);
  if (!buffer)
    throw Error(ErrorKind::memory, name.text() + ": Metal cannot make a buffer of " + std::to_string(length) +
                                       " bytes, " + std::to_string([device_.get() currentAllocatedSize]) +
                                       " are in use");
  if (region.lasting) residency_->add(buffer.get());
  region.windows.push_back({begin, length, std::move(buffer)});
  return region.windows.back();
}

}  // namespace pyturbo::metal
