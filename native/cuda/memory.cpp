#include "cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/bus_error.h"
#include "cuda/upload.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"

namespace pyturbo::cuda {
namespace {

// Parts of a file that are closer together become one copy: many tensors are smaller than what an allocation
// costs, and no two copies share a page.
constexpr uint64_t kGap = uint64_t(1) << 17;

// Copies lie as far from a multiple of this as what they are copies of.
constexpr uint64_t kAlignment = 256;

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

std::string allocation(uint64_t bytes, const char* where) {
  return "cannot allocate a buffer of " + std::to_string(bytes) + " bytes in " + where;
}

}  // namespace

struct Memory::Owned {
  Owned(std::shared_ptr<Memory> memory, uintptr_t begin, bool host)
      : memory(std::move(memory)), begin(begin), host(host) {}
  ~Owned() {
    const std::shared_ptr<Context>& context = memory->stream_->context();
    if (!context->opened_here()) return;
    memory->remove(begin);
    try {
      const Current current(*context);
      memory->stream_->wait();  // kernels may still use it
      if (host)
        context->driver().host_free(reinterpret_cast<void*>(begin));
      else
        context->driver().memory_free(begin);
    } catch (const Error&) {  // the context is broken, and its memory gone with it
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  const std::shared_ptr<Memory> memory;
  const uintptr_t begin;
  const bool host;
};

struct Memory::Copied {
  Copied(std::shared_ptr<Owned> copy, uintptr_t begin) : copy(std::move(copy)), begin(begin) {}
  ~Copied() { copy->memory->remove(begin); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;

  const std::shared_ptr<Owned> copy;
  const uintptr_t begin;
};

std::shared_ptr<Memory::Owned> Memory::take(uint64_t bytes) {
  Address address = 0;
  stream_->require(allocation(bytes, "the memory of the GPU"),
                   stream_->driver().memory_allocate(&address, bytes));
  add({uintptr_t(address), uintptr_t(address) + bytes, address, Region::gpu});
  return std::make_shared<Owned>(shared_from_this(), uintptr_t(address), /*host=*/false);
}

std::shared_ptr<Storage> Memory::allocate(uint64_t bytes) {
  const auto owner = take(std::max<uint64_t>(bytes, 1));
  stream_->copied("allocate",
                  stream_->driver().fill(owner->begin, 0, std::max<uint64_t>(bytes, 1), stream_->handle()));
  return std::make_shared<Storage>(reinterpret_cast<void*>(owner->begin), bytes, /*writable=*/true, owner,
                                   Reach::device);
}

std::shared_ptr<Storage> Memory::allocate_shared(uint64_t bytes) {
  const uint64_t whole = (std::max<uint64_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* memory = nullptr;
  stream_->require(allocation(whole, "pinned memory"),
                   stream_->driver().host_allocate(&memory, whole, kHostAllocPortable | kHostAllocDeviceMap));
  add({number(memory), number(memory) + bytes, Address(number(memory)), Region::host});
  const auto owner = std::make_shared<Owned>(shared_from_this(), number(memory), /*host=*/true);
  std::memset(memory, 0, whole);
  return std::make_shared<Storage>(memory, bytes, /*writable=*/true, owner, Reach::host);
}

void Memory::want(Storage& storage, uint64_t begin, uint64_t bytes) {
  const uintptr_t place = number(storage.data()) + begin;
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || region_of(*regions_, place, bytes)) return;
  wanted_.push_back({storage.weak_from_this(), place, place + bytes});
}

uint64_t Memory::wanted_bytes() const {
  std::vector<Wanted> wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted = wanted_;
  }
  uint64_t bytes = 0;
  for (const Part& part : parts_of(wanted)) bytes += part.end - part.begin;
  return bytes;
}

// A copy that a wanted part overlaps is made again, together with the part: an argument lies in one copy.
std::vector<Memory::Part> Memory::parts_of(const std::vector<Wanted>& wanted) const {
  const auto table = this->table();
  std::vector<Part> parts;
  for (const Wanted& want : wanted) {
    std::shared_ptr<Storage> storage = want.storage.lock();
    if (!storage || region_of(*table, want.begin, want.end - want.begin)) continue;
    for (const Region& known : *table)
      if (known.kind == Region::copy && known.begin < want.end && want.begin < known.end)
        parts.push_back({storage, known.begin, known.end});
    parts.push_back({std::move(storage), want.begin, want.end});
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
  std::vector<Part> merged;
  for (Part& part : parts) {
    if (!merged.empty() && merged.back().storage == part.storage && part.begin < merged.back().end + kGap)
      merged.back().end = std::max(merged.back().end, part.end);
    else
      merged.push_back(std::move(part));
  }
  return merged;
}

void Memory::bring(const Progress& progress) {
  const std::lock_guard bringing(bringing_);
  std::vector<Wanted> wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted.swap(wanted_);
  }
  try {
    copy(parts_of(wanted), progress);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    wanted_.insert(wanted_.end(), wanted.begin(), wanted.end());
    throw;
  }
}

void Memory::copy(const std::vector<Part>& parts, const Progress& progress) {
  std::vector<std::shared_ptr<Owned>> copies;
  std::vector<Upload> uploads;
  uint64_t total = 0;
  for (const Part& part : parts) {
    const uint64_t bytes = part.end - part.begin;
    copies.push_back(take(bytes + part.begin % kAlignment));
    uploads.push_back({Address(copies.back()->begin) + part.begin % kAlignment,
                       reinterpret_cast<const uint8_t*>(part.begin), bytes});
    total += bytes;
  }
  if (files_are_mapped()) watch_bus_errors();
  upload(*stream_, uploads, [&](uint64_t done) { progress(done, total); });
  for (const Part& part : parts)
    require_readable(reinterpret_cast<const void*>(part.begin), part.end - part.begin);
  for (size_t i = 0; i < parts.size(); ++i) {
    add({parts[i].begin, parts[i].end, uploads[i].to, Region::copy});
    parts[i].storage->attach(this, std::make_shared<Copied>(std::move(copies[i]), parts[i].begin));
  }
}

bool Memory::owns(const Storage& storage) const {
  const auto table = this->table();
  const Region* region = region_of(*table, number(storage.data()), storage.bytes());
  return region && region->kind != Region::copy;
}

bool Memory::is(const void* address, uint64_t bytes, Region::Kind kind) const {
  const auto table = this->table();
  const Region* region = region_of(*table, number(address), bytes);
  return region && region->kind == kind;
}

bool Memory::Lookup::find(const void* address, uint64_t bytes, Address& place) {
  const uintptr_t begin = number(address);
  if (!last_ || begin < last_->begin || begin + bytes > last_->end) last_ = region_of(*table_, begin, bytes);
  if (!last_) return false;
  place = last_->place + (begin - last_->begin);
  return true;
}

std::shared_ptr<const Memory::Table> Memory::table() const {
  const std::lock_guard lock(mutex_);
  return regions_;
}

const Memory::Region* Memory::region_of(const Table& table, uintptr_t address, uint64_t bytes) {
  const auto next = std::upper_bound(table.begin(), table.end(), address,
                                     [](uintptr_t a, const Region& known) { return a < known.begin; });
  if (next == table.begin() || address + bytes > std::prev(next)->end) return nullptr;
  return &*std::prev(next);
}

// A copy takes the place of those that it holds.
void Memory::add(const Region& region) {
  const std::lock_guard lock(mutex_);
  auto table = std::make_shared<Table>(*regions_);
  std::erase_if(*table,
                [&](const Region& known) { return region.begin <= known.begin && known.end <= region.end; });
  table->insert(std::upper_bound(table->begin(), table->end(), region.begin,
                                 [](uintptr_t begin, const Region& known) { return begin < known.begin; }),
                region);
  regions_ = std::move(table);
}

void Memory::remove(uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  auto table = std::make_shared<Table>(*regions_);
  std::erase_if(*table, [&](const Region& known) { return known.begin == begin; });
  regions_ = std::move(table);
}

}  // namespace pyturbo::cuda
