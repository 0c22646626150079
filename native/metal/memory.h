// Host memory for the GPU: no-copy buffers over whole pages.
#pragma once

#import <Metal/Metal.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "metal/expected.h"
#include "metal/flight.h"
#include "metal/object.h"
#include "metal/residency.h"
#include "pyturbo/storage.h"

namespace pyturbo::metal {

// Names an argument in messages.
struct ArgumentName {
  const char* label;
  const char* kernel;
  const char* argument;

  std::string text() const { return std::string(label) + (*label ? ": " : "") + kernel + ": " + argument; }
};

// The place of some memory on the GPU.
struct Place {
  id<MTLBuffer> buffer = nil;  // lives as long as the storage
  uint64_t offset = 0;
};

// The memory that a device may touch. A storage of whole pages is used in place, through one buffer or, if it
// is longer than a buffer can be, through several that overlap by half, so that each argument lies in one of
// them. Owner: the device, and every storage in use. Any thread; one lock.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  // Memory is released only after all command buffers of `flight` that were committed before have finished,
  // and those of `expected` are dropped.
  Memory(id<MTLDevice> device, std::shared_ptr<Residency> residency, std::shared_ptr<Flight> flight,
         std::shared_ptr<Expected> expected);

  // Returns the most bytes of an argument, wherever it begins in a page.
  uint64_t longest() const { return longest_ - kPageBytes; }

  // Returns the most bytes that all buffers together should have.
  uint64_t working_set() const { return working_set_; }

  // Throws Error{device} for an argument of more bytes than that.
  [[noreturn]] void refuse_length(uint64_t bytes, const ArgumentName& name) const;

  // Makes memory known that consists of whole pages (Storage::pages). `lasting`: it is worth keeping resident
  // between launches.
  void use(Storage& storage, bool lasting = true);

  // Returns whether several buffers show the same writable memory, which Metal cannot detect.
  bool aliased();

  // Returns a number that grows when buffers are released: until then, places that were found stay valid.
  uint64_t version() const { return version_.load(); }

  // Releases all buffers; the memory itself stays with its storages. find() fails from then on.
  void close();

  // Finds the buffer that shows these bytes. Returns false when no known storage holds them. Throws
  // Error{device} for an argument longer than a buffer can be, and Error{memory} when Metal refuses.
  bool find(const void* address, uint64_t bytes, const ArgumentName& name, Place& place);

 private:
  struct Window {
    uintptr_t begin;
    uint64_t bytes;
    Ref<BufferObject> buffer;
  };
  struct Region {
    uintptr_t begin, end;  // whole pages
    bool writable, lasting;
    std::vector<Window> windows;
  };
  struct Use;  // attached to a storage; removes the region together with it

  void forget(uintptr_t begin);
  Window& open_window(Region& region, uintptr_t address, uint64_t bytes, const ArgumentName& name);

  Ref<DeviceObject> device_;
  std::shared_ptr<Residency> residency_;
  std::shared_ptr<Flight> flight_;
  std::shared_ptr<Expected> expected_;
  const uint64_t longest_;  // most bytes of a buffer, in whole pages
  const uint64_t working_set_;
  std::atomic<uint64_t> version_{0};
  std::mutex mutex_;             // guards the members below
  std::vector<Region> regions_;  // by address
};

}  // namespace pyturbo::metal
