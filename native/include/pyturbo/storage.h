// Memory that kernels read and write: who owns it, and which part of it a buffer shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "pyturbo/process.h"

namespace pyturbo {

inline constexpr uint64_t kBufferAlignment =
    16;  // of memory that is wrapped or mapped: what a 128-bit load needs

// Pages of allocations and mapped files, at least as large as those of any host.
inline constexpr uint64_t kPageBytes = 16384;

// A contiguous stretch of memory and whatever keeps it alive. Its data and size do not change; it is shared
// by buffers and may be used from any thread.
class Storage {
 public:
  // `owner` is released with the last buffer that uses the memory. `pages`: it starts on a page and no other
  // memory shares its last one, so that a device can take it over as it is.
  Storage(void* data, uint64_t bytes, bool writable, std::shared_ptr<void> owner, bool pages = false)
      : data_(static_cast<uint8_t*>(data)),
        bytes_(bytes),
        writable_(writable),
        pages_(pages),
        owner_(std::move(owner)) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }
  bool pages() const { return pages_; }

  // What a device keeps beside the memory, such as its own handle for it; gone before the memory is. In a
  // child of fork() it stays, since what it holds is the parent's.
  std::shared_ptr<void> attached(const void* device) const;
  void attach(const void* device, std::shared_ptr<void> value);

 private:
  struct Attachment {
    const void* device;
    std::shared_ptr<void> value;
    const Attachment* next;
  };

  uint8_t* data_;
  uint64_t bytes_;
  bool writable_;
  bool pages_;
  std::shared_ptr<void> owner_;
  const uint32_t born_ = fork_count();
  std::atomic<const Attachment*> attachments_{nullptr};  // only ever grows
};

// Zeroed memory in pages of its own. Throws Error{memory}.
std::shared_ptr<Storage> allocate_storage(uint64_t bytes);

// Part of a file mapped read-only. `bytes` < 0 maps to the end. The first byte must lie on a multiple of
// kBufferAlignment in the file. Throws Error{file} or Error{format}, always with the path.
std::shared_ptr<Storage> map_file(const std::string& path, uint64_t offset, int64_t bytes);

// The same of a file that is open; `path` is for messages.
std::shared_ptr<Storage> map_file(int file, const std::string& path, uint64_t offset, int64_t bytes);

}  // namespace pyturbo
