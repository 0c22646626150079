// A file of expert records, read at any offset by any thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "pyturbo/expert_store.h"

namespace pyturbo::experts {

// The system calls of record files. Tests replace them to make reads fail.
struct FileCalls {
  std::atomic<int (*)(const char* path, int flags)> open;
  std::atomic<ssize_t (*)(int file, void* memory, size_t bytes, off_t offset)> read;
};
extern FileCalls file_calls;

// Owner: a store. Any thread, no lock: reads have their own offsets.
class RecordFile {
 public:
  // `direct`: reads past the page cache, in blocks of kDirectAlignment; where the file system refuses,
  // through it. Throws Error{file}, or Error{format} when the file does not have experts * stride bytes.
  RecordFile(const ExpertFile& file, uint64_t stride, bool direct);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  // Throws Error{file} when the file was written to after it was opened, or became shorter.
  void require_unchanged() const;

  // Reads `bytes` of an expert's record from byte `begin` on, all of them: short and interrupted reads go on,
  // and failures that may pass are repeated after a pause. Adds the number of reads to `calls`. Throws
  // Error{file} with path, expert and bytes, or that of require_unchanged(); Error{state} when `stop` ends a
  // pause.
  void read(uint32_t expert, uint64_t begin, uint64_t bytes, uint8_t* memory, const std::atomic<bool>& stop,
            uint64_t& calls);

 private:
  void use_cache();

  const std::string path_;
  const uint64_t stride_;
  struct stat status_{};  // when it was opened
  int file_ = -1;
  std::atomic<bool> direct_;
};

}  // namespace pyturbo::experts
