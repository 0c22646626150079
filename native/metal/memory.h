// Host memory as the GPU sees it: no-copy buffers over whole pages.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "metal/flight.h"
#include "metal/object.h"
#include "metal/residency.h"
#include "pyturbo/storage.h"

namespace pyturbo::metal {

// Which argument a message is about.
struct ArgumentName {
  const char* label;
  const char* kernel;
  const char* argument;

  std::string text() const { return std::string(label) + (*label ? ": " : "") + kernel + ": " + argument; }
};

// Where a stretch of memory lies for the GPU.
struct Place {
  id<MTLBuffer> buffer = nil;  // lives as long as the storage
  uint64_t offset = 0;
};

// The memory that a device may touch. A storage of whole pages is shown to the GPU where it is, by one buffer
// or, beyond the largest length that a buffer may have, by several that overlap by half, so that each
// argument lies whole in one. Owner: the device, and every storage that was used. Any thread.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  // Memory goes only when nothing of `flight` is at work.
  Memory(id<MTLDevice> device, std::shared_ptr<Residency> residency, std::shared_ptr<Flight> flight);

  // Bytes that an argument may have wherever it begins in a page.
  uint64_t longest() const { return longest_ - kPageBytes; }

  // Throws Error{device}: an argument is longer than that.
  [[noreturn]] void refuse_length(uint64_t bytes, const ArgumentName& name) const;

  // Makes memory known that consists of whole pages (Storage::pages). `lasting`: it is worth keeping resident
  // between launches.
  void use(Storage& storage, bool lasting = true);

  // Whether writable memory is shown by several buffers: Metal does not see that they are the same.
  bool aliased();

  // Gives all buffers back; the memory itself stays with its storages. Nothing is found any more.
  void close();

  // False where no storage that was used holds these bytes. Throws Error{device} for an argument longer than
  // a buffer can be and Error{memory} where Metal refuses.
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
    uint64_t last_use;  // number of the command buffer, in Flight
    std::vector<Window> windows;
  };
  struct Use;  // what a storage holds on to: ends the region with it

  void forget(uintptr_t begin);
  Window& open_window(Region& region, uintptr_t address, uint64_t bytes, const ArgumentName& name);

  Ref<DeviceObject> device_;
  std::shared_ptr<Residency> residency_;
  std::shared_ptr<Flight> flight_;
  uint64_t longest_;             // of a buffer, in whole pages
  std::mutex mutex_;             // guards what follows
  std::vector<Region> regions_;  // by address
};

}  // namespace pyturbo::metal
