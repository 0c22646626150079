#include "cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/bus_error.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"

namespace pyturbo::cuda {
namespace {

// Shorter memory of the host is not worth registering.
constexpr uint64_t kRegisteredBytes = uint64_t(1) << 20;

constexpr uint64_t kPieceBytes = uint64_t(1) << 28;

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

std::string allocation(uint64_t bytes, const char* where) {
  return "cannot allocate a buffer of " + std::to_string(bytes) + " bytes in " + where;
}

// Read-only memory of the host that is registered, so that the GPU reads it by itself. Nothing happens where
// that is refused.
class Registered {
 public:
  Registered(const Driver& driver, const uint8_t* data, uint64_t bytes) : driver_(driver) {
    void* const memory = const_cast<uint8_t*>(data);
    if (driver.host_register(memory, bytes, kHostRegisterPortable | kHostRegisterReadOnly) == Result::success)
      memory_ = memory;
  }
  ~Registered() {
    if (memory_) driver_.host_unregister(memory_);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const Driver& driver_;
  void* memory_ = nullptr;
};

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

void Memory::use(Storage& storage) {
  if (storage.bytes() == 0 || storage.attached(this)) return;
  auto copy = take(storage.bytes());
  copy_in(copy->begin, storage);
  const uintptr_t begin = number(storage.data());
  if (region_of(*table(), begin, storage.bytes())) return;  // another thread was faster
  add({begin, begin + storage.bytes(), copy->begin, Region::copy});
  storage.attach(this, std::make_shared<Copied>(std::move(copy), begin));
}

// A piece is registered while the one before it is copied. Pieces begin on whole pages, except for the first.
void Memory::copy_in(Address to, const Storage& from) {
  const Driver& driver = stream_->driver();
  const bool registers = from.bytes() >= kRegisteredBytes &&
                         stream_->context()->attribute(Attribute::read_only_host_register_supported);
  const uintptr_t begin = number(from.data()), end = begin + from.bytes();
  if (files_are_mapped()) watch_bus_errors();
  std::unique_ptr<Registered> last;
  for (uintptr_t place = begin; place < end;) {
    const uint64_t bytes = std::min(end, (place / kPieceBytes + 1) * kPieceBytes) - place;
    const uint8_t* const data = reinterpret_cast<const uint8_t*>(place);
    auto next = registers ? std::make_unique<Registered>(driver, data, bytes) : nullptr;
    stream_->synchronize();
    last = std::move(next);
    stream_->copied("copy of a file", driver.copy_in(to + (place - begin), data, bytes, stream_->handle()));
    place += bytes;
  }
  stream_->synchronize();
  require_readable(from.data(), from.bytes());
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

void Memory::add(const Region& region) {
  const std::lock_guard lock(mutex_);
  auto table = std::make_shared<Table>(*regions_);
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
