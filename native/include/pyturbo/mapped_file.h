// Mapped files: the memory of each, and whether it can still be read.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "pyturbo/device.h"

namespace pyturbo {

struct MappedRange;

// The mapped memory of a file, with the file's status at the time of mapping. Owner: the storage over the
// memory. While it lives, reading a page that the file no longer has gives zeros instead of ending the
// process (core/bus_error.h), and require_readable() reports it. Any thread, no lock.
class MappedFile : public std::enable_shared_from_this<MappedFile> {
 public:
  // `memory` shows `bytes` of the file that `status` describes, up to byte `end` of the file. `mapping` keeps
  // it mapped.
  MappedFile(std::string path, const struct stat& status, uint64_t end, const void* memory, uint64_t bytes,
             std::shared_ptr<void> mapping);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Throws Error{file} when the file became shorter or was written to. Replacing the file by another of the
  // same name is no change: the memory still shows the old one.
  void require_unchanged() const;

  // Throws the Error{file} of a file with a lost page.
  [[noreturn]] void refuse() const;

 private:
  bool find(struct stat& now) const;

  const std::string path_;
  const std::string place_;  // absolute path, because the current folder may change
  const struct stat status_;
  const uint64_t end_;
  const std::shared_ptr<void> mapping_;
  MappedRange& range_;
};

// Returns the mapped file at this address, if there is one. The caller keeps the memory alive.
std::weak_ptr<MappedFile> mapped_file_at(const void* address);

// Replaces the lost pages from this address on by zeros; called by the handler of SIGBUS. Returns false when
// the address is not in a file of ours. Takes no lock and allocates nothing.
bool fill_lost_pages(const void* address);

namespace detail {
extern std::atomic<uint32_t> mapped_files;  // number of MappedFiles
extern std::atomic<uint32_t> lost_files;    // number of those with lost pages
void require_readable(const void* address, uint64_t bytes);
void require_readable(const ReadyLaunch* launches, size_t count);
}  // namespace detail

inline bool files_are_mapped() { return detail::mapped_files.load(std::memory_order_relaxed) > 0; }

// Throw Error{file} when the memory, or an argument of a launch, is part of a file with lost pages.
inline void require_readable(const void* address, uint64_t bytes) {
  if (detail::lost_files.load(std::memory_order_acquire) > 0) detail::require_readable(address, bytes);
}
inline void require_readable(const ReadyLaunch* launches, size_t count) {
  if (detail::lost_files.load(std::memory_order_acquire) > 0) detail::require_readable(launches, count);
}

}  // namespace pyturbo
