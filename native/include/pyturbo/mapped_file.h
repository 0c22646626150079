// Files that are mapped: which memory they are, and whether it can still be read.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "pyturbo/device.h"

namespace pyturbo {

struct MappedRange;

// Memory that is part of a file, and the file as it was then. Owner: the storage over the memory. While it
// lives, reading a page that the file no longer has gives zeros instead of ending the process (bus_error.h),
// and require_readable() tells of it. Any thread.
class MappedFile : public std::enable_shared_from_this<MappedFile> {
 public:
  // `memory` is `bytes` of the file that `status` describes, up to its byte `end`. `mapping` holds the
  // memory.
  MappedFile(std::string path, const struct stat& status, uint64_t end, const void* memory, uint64_t bytes,
             std::shared_ptr<void> mapping);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Throws Error{file} where the file became shorter or was written to. A file of the same name that was put
  // in its place does not count: the memory is still that of the old one.
  void require_unchanged() const;

  // Throws Error{file}: a page of it was lost.
  [[noreturn]] void refuse() const;

 private:
  bool find(struct stat& now) const;

  const std::string path_;
  const std::string place_;  // the path from the root: the current folder may change
  const struct stat status_;
  const uint64_t end_;
  const std::shared_ptr<void> mapping_;
  MappedRange& range_;
};

// The mapped file that these bytes are part of, if they are. The caller holds the memory.
std::weak_ptr<MappedFile> mapped_file_at(const void* address);

// Called by the handler of SIGBUS: puts zeros where the file at this address ends. False: it is not a file of
// ours. Takes no lock and no memory.
bool fill_lost_pages(const void* address);

namespace detail {
extern std::atomic<uint32_t> mapped_files;  // that live
extern std::atomic<uint32_t> lost_files;    // of these, with pages that could not be read
void require_readable(const void* address, uint64_t bytes);
void require_readable(const ReadyLaunch* launches, size_t count);
}  // namespace detail

inline bool files_are_mapped() { return detail::mapped_files.load(std::memory_order_relaxed) > 0; }

// Throws Error{file} where the memory, or an argument of a launch, is part of a file with lost pages.
inline void require_readable(const void* address, uint64_t bytes) {
  if (detail::lost_files.load(std::memory_order_acquire) > 0) detail::require_readable(address, bytes);
}
inline void require_readable(const ReadyLaunch* launches, size_t count) {
  if (detail::lost_files.load(std::memory_order_acquire) > 0) detail::require_readable(launches, count);
}

}  // namespace pyturbo
