#include "core/pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace pyturbo {

uint64_t page_bytes() {
  static const uint64_t bytes = uint64_t(::sysconf(_SC_PAGESIZE));
  return bytes;
}

namespace {

// Advises the system about the whole pages in a part of memory.
bool advise(void* memory, uint64_t bytes, int advice) {
  const uintptr_t page = page_bytes(), address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  return begin >= end || ::madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0;
}

}  // namespace

// On macOS MADV_DONTNEED leaves the memory of allocations with the process.
#if defined(MADV_FREE_REUSABLE)

bool give_back_pages(void* memory, uint64_t bytes) { return advise(memory, bytes, MADV_FREE_REUSABLE); }

void reuse_pages(void* memory, uint64_t bytes) {
  const uint64_t around = page_bytes() - 1;
  advise(static_cast<uint8_t*>(memory) - around, bytes + 2 * around, MADV_FREE_REUSE);
}

#else

bool give_back_pages(void* memory, uint64_t bytes) { return advise(memory, bytes, MADV_DONTNEED); }

void reuse_pages(void*, uint64_t) {}

#endif

}  // namespace pyturbo
