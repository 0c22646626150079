// Memory that kernels can touch: that of the GPU, copies of mapped files in it, and pinned memory of the
// host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/stream.h"
#include "pyturbo/storage.h"

namespace pyturbo::cuda {

// Addresses of the GPU never equal those of the host, so one table has both. Owner: the device, and every
// storage made or used by it. Any thread; one lock for the table, which is replaced and never changed, so
// that nobody waits for a look-up, nor a look-up for the driver. The context must be current, except for
// storages that are dropped.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  explicit Memory(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}

  // Allocate zeroed memory: of the GPU, or of the host where both can touch it. Throw an Error{memory} that
  // says how much is free.
  std::shared_ptr<Storage> allocate(uint64_t bytes);
  std::shared_ptr<Storage> allocate_shared(uint64_t bytes);

  // Notes that kernels will read these bytes of a mapped file. They are given a copy, which bring() makes.
  void want(Storage& storage, uint64_t begin, uint64_t bytes);

  // Copies all that is wanted to the GPU, after another thread that is at it; what lies close together in a
  // file becomes one copy, freed with the file. `progress` is called with the bytes done and their total.
  // Throws Error{memory}, and Error{file} for a file that has changed; all is then still wanted.
  void bring(const Progress& progress);

  // Returns the bytes that are wanted.
  uint64_t wanted_bytes() const;

  // Whether kernels can touch this memory of a storage as it is.
  bool owns(const Storage& storage) const;

  // Whether only the GPU can touch these bytes, or both can.
  bool on_gpu(const void* address, uint64_t bytes) const { return is(address, bytes, Region::gpu); }
  bool shared(const void* address, uint64_t bytes) const { return is(address, bytes, Region::host); }

  class Lookup;

 private:
  struct Region {
    uintptr_t begin, end;  // as arguments name it
    Address place;         // of its first byte, for kernels
    enum Kind { gpu, host, copy } kind;
  };
  struct Owned;   // frees memory together with its last owner
  struct Copied;  // attached to a storage of which a part was copied
  struct Part {
    std::shared_ptr<Storage> storage;
    uintptr_t begin, end;
  };
  struct Wanted {
    std::weak_ptr<Storage> storage;
    uintptr_t begin, end;
  };

  using Table = std::vector<Region>;  // by address

  bool is(const void* address, uint64_t bytes, Region::Kind kind) const;
  std::shared_ptr<const Table> table() const;
  static const Region* region_of(const Table& table, uintptr_t address, uint64_t bytes);
  void add(const Region& region);
  void remove(uintptr_t begin);
  std::shared_ptr<Owned> take(uint64_t bytes);
  std::vector<Part> parts_of(const std::vector<Wanted>& wanted) const;
  void copy(const std::vector<Part>& parts, const Progress& progress);

  const std::shared_ptr<Stream> stream_;
  std::mutex bringing_;       // held while copies are made; locked before mutex_
  mutable std::mutex mutex_;  // guards the members below
  std::shared_ptr<const Table> regions_ = std::make_shared<Table>();
  std::vector<Wanted> wanted_;
};

// The addresses of some arguments, by the table as it was when this was made. Owner: one thread.
class Memory::Lookup {
 public:
  explicit Lookup(const Memory& memory) : table_(memory.table()) {}

  // Whether the table is still the same.
  bool is_of(const Memory& memory) const { return table_ == memory.table(); }

  // Finds the address at which kernels see these bytes. Returns false when no known memory holds them all.
  bool find(const void* address, uint64_t bytes, Address& place);

 private:
  const std::shared_ptr<const Table> table_;
  const Region* last_ = nullptr;  // that was found
};

}  // namespace pyturbo::cuda
