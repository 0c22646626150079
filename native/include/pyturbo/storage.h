// Memory that kernels read and write, and its owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "pyturbo/process.h"

namespace pyturbo {

inline constexpr uint64_t kBufferAlignment =
    16;  // of wrapped or mapped memory: 128-bit loads need this alignment

// Pages of allocations and mapped files, at least as large as those of most hosts.
inline constexpr uint64_t kPageBytes = 16384;

// Who can touch some memory.
enum class Reach : uint8_t {
  host,    // the host; a device may have to copy it
  pages,   // the host; whole pages, the last of which is shared with no other memory
  device,  // only kernels and the copies of its device: data() is an address of the device
};

// Contiguous memory and the owner that keeps it alive. Address and size never change. Owner: the buffers that
// share it. Any thread; attachments are added without a lock.
class Storage : public std::enable_shared_from_this<Storage> {
 public:
  // `owner` is released with the last buffer that uses the memory.
  Storage(void* data, uint64_t bytes, bool writable, std::shared_ptr<void> owner, Reach reach = Reach::host)
      : data_(static_cast<uint8_t*>(data)),
        bytes_(bytes),
        writable_(writable),
        reach_(reach),
        owner_(std::move(owner)) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }
  // Whether the host may touch the memory. Where it may not, addresses still differ from those of the host.
  bool on_host() const { return reach_ != Reach::device; }
  // Whether a device that shares memory with the host can use it in place.
  bool pages() const { return reach_ == Reach::pages; }

  // A device's own data about the memory, such as its handle for it. Destroyed before the memory is released,
  // but never in a child of fork(), where it belongs to the parent.
  std::shared_ptr<void> attached(const void* device) const;
  void attach(const void* device, std::shared_ptr<void> value);

 private:
  struct Attachment {
    const void* device;
    std::shared_ptr<void> value;
    const Attachment* next;
  };

  uint8_t* const data_;
  const uint64_t bytes_;
  const bool writable_;
  const Reach reach_;
  std::shared_ptr<void> owner_;
  const uint32_t born_ = fork_count();
  std::atomic<const Attachment*> attachments_{nullptr};  // only ever grows
};

// Allocates zeroed memory in pages of its own. Throws Error{memory}.
std::shared_ptr<Storage> allocate_storage(uint64_t bytes);

// Maps part of a file read-only. `bytes` < 0 maps to the end. `offset` must be a multiple of
// kBufferAlignment. Throws Error{file} or Error{format}, always with the path.
std::shared_ptr<Storage> map_file(const std::string& path, uint64_t offset, int64_t bytes);

// Maps part of an open file; `path` is for messages.
std::shared_ptr<Storage> map_file(int file, const std::string& path, uint64_t offset, int64_t bytes);

}  // namespace pyturbo
