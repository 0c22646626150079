// Memory that kernels read and write: who owns it, and which part of it a buffer shows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace pyturbo {

inline constexpr uint64_t kBufferAlignment =
    16;  // of memory that is wrapped or mapped: what a 128-bit load needs

// A contiguous stretch of memory and whatever keeps it alive. Immutable after construction, shared by
// buffers. A device may derive from it to keep its own handle beside the address.
class Storage {
 public:
  // `owner` is released with the last buffer that uses the memory.
  Storage(void* data, uint64_t bytes, bool writable, std::shared_ptr<void> owner)
      : data_(static_cast<uint8_t*>(data)), bytes_(bytes), writable_(writable), owner_(std::move(owner)) {}
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }

 private:
  uint8_t* data_;
  uint64_t bytes_;
  bool writable_;
  std::shared_ptr<void> owner_;
};

// Zeroed memory, aligned to a page of the host. Throws Error{memory}.
std::shared_ptr<Storage> allocate_storage(uint64_t bytes);

// Part of a file mapped read-only. `bytes` < 0 maps to the end. The first byte must lie on a multiple of
// kBufferAlignment in the file. Throws Error{file} or Error{format}, always with the path.
std::shared_ptr<Storage> map_file(const std::string& path, uint64_t offset, int64_t bytes);

}  // namespace pyturbo
