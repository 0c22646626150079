// When the bytes of a file were changed last.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace pyturbo {

// Returns nanoseconds.
inline int64_t changed_at(const struct stat& status) {
#if defined(__APPLE__)
  const timespec& time = status.st_mtimespec;
#else
  const timespec& time = status.st_mtim;
#endif
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace pyturbo
