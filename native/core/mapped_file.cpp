#include "pyturbo/mapped_file.h"

#include <sys/mman.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/bus_error.h"
#include "core/file_time.h"
#include "core/pages.h"
#include "pyturbo/error.h"

namespace pyturbo {

// The address range of a mapped file. Owner: the process, which never frees ranges and reuses them after
// their file is unmapped. Any thread, and signal handlers; no lock: readers compare `version` before and
// after.
struct MappedRange {
  std::atomic<bool> taken{true};
  std::atomic<uint32_t> version{1};  // odd while the range changes
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> lost{false};
  std::atomic<const MappedFile*> file{nullptr};
  MappedRange* next = nullptr;
};

namespace detail {
constinit std::atomic<uint32_t> mapped_files{0};
constinit std::atomic<uint32_t> lost_files{0};
}  // namespace detail

namespace {

constinit std::atomic<MappedRange*> ranges{nullptr};

MappedRange& take_range() {
  for (MappedRange* range = ranges.load(); range; range = range->next)
    if (!range->taken.exchange(true)) return *range;
  auto* added = new MappedRange;
  added->next = ranges.load();
  while (!ranges.compare_exchange_weak(added->next, added)) continue;
  return *added;
}

MappedRange* range_at(uintptr_t address) {
  for (MappedRange* range = ranges.load(); range; range = range->next) {
    const uint32_t version = range->version.load();
    const uintptr_t begin = range->begin.load(), end = range->end.load();
    if (version % 2 == 0 && range->version.load() == version && begin <= address && address < end)
      return range;
  }
  return nullptr;
}

std::string absolute(const std::string& path) {
  std::error_code none;
  const std::filesystem::path found = std::filesystem::absolute(path, none);
  return none ? path : found.string();
}

}  // namespace

MappedFile::MappedFile(std::string path, const struct stat& status, uint64_t end, const void* memory,
                       uint64_t bytes, std::shared_ptr<void> mapping)
    : path_(std::move(path)),
      place_(absolute(path_)),
      status_(status),
      end_(end),
      mapping_(std::move(mapping)),
      range_(take_range()) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(memory), page = page_bytes();
  range_.begin.store(first / page * page);
  range_.end.store((first + bytes + page - 1) / page * page);
  range_.file.store(this);
  range_.version.fetch_add(1);
  detail::mapped_files.fetch_add(1);
  watch_bus_errors();
}

MappedFile::~MappedFile() {
  range_.version.fetch_add(1);
  if (range_.lost.exchange(false)) detail::lost_files.fetch_sub(1);
  range_.file.store(nullptr);
  range_.taken.store(false);
  detail::mapped_files.fetch_sub(1);
}

// Reads the file's current status. Returns false when its path leads to no file or to another one.
bool MappedFile::find(struct stat& now) const {
  return ::stat(place_.c_str(), &now) == 0 && now.st_dev == status_.st_dev && now.st_ino == status_.st_ino;
}

void MappedFile::require_unchanged() const {
  struct stat now;
  if (range_.lost.load()) refuse();
  if (!find(now)) return;
  if (uint64_t(now.st_size) < end_) refuse();
  if (now.st_size != status_.st_size || changed_at(now) != changed_at(status_))
    throw Error(ErrorKind::file,
                path_ + ": was written to, or touched, after it was mapped; load the model again");
}

void MappedFile::refuse() const {
  struct stat now;
  if (find(now) && uint64_t(now.st_size) < end_)
    throw Error(ErrorKind::file, path_ + ": became shorter while it was in use: expected " +
                                     std::to_string(end_) + " bytes, got " + std::to_string(now.st_size) +
                                     "; load the model again");
  throw Error(ErrorKind::file,
              path_ + ": could not be read while it was in use: a part is missing; load the model again");
}

std::weak_ptr<MappedFile> mapped_file_at(const void* address) {
  const MappedRange* range = range_at(reinterpret_cast<uintptr_t>(address));
  return range ? const_cast<MappedFile*>(range->file.load())->weak_from_this() : std::weak_ptr<MappedFile>();
}

bool fill_lost_pages(const void* address) {
  const uintptr_t fault = reinterpret_cast<uintptr_t>(address);
  MappedRange* range = range_at(fault);
  if (!range) return false;
  const uintptr_t page = fault / page_bytes() * page_bytes();
  void* const zeros = ::mmap(reinterpret_cast<void*>(page), range->end.load() - page, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (zeros == MAP_FAILED) return false;
  if (!range->lost.exchange(true)) detail::lost_files.fetch_add(1);
  return true;
}

namespace detail {

void require_readable(const void* address, uint64_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(address);
  for (MappedRange* range = ranges.load(); range; range = range->next)
    if (range->lost.load() && range->begin.load() < first + bytes && first < range->end.load())
      range->file.load()->refuse();
}

void require_readable(const ReadyLaunch* launches, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const KernelInfo& kernel = *launches[i].kernel;
    for (uint32_t j = 0; j < kernel.argument_count; ++j) {
      const ArgumentInfo& info = kernel.arguments[j];
      if (info.kind == ArgumentKind::buffer)
        require_readable(launches[i].arguments->buffers[info.index],
                         launches[i].arguments->bytes[info.index]);
    }
  }
}

}  // namespace detail
}  // namespace pyturbo
