#include "pyturbo/storage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/pages.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"

namespace pyturbo {
namespace {

constexpr uint64_t kLargestAllocation = uint64_t(1) << 46;  // larger than the address space of any host
constexpr uint64_t kHugePageBytes = uint64_t(2) << 20;      // of Linux, where pages have 4 KiB

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw Error(ErrorKind::file, path + ": cannot be opened: " + std::strerror(errno));
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

// A range of address space: whole pages of kPageBytes that start `phase` bytes, a number of pages, after a
// multiple of a power of two: the size of a huge page where the range has room for one. Owner: a Storage;
// unmapped by the destructor.
class Mapping {
 public:
  // Reserves `bytes` of address space; data() is null if there is not enough.
  explicit Mapping(uint64_t bytes, uint64_t phase = 0)
      : alignment_(bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes), phase_(phase % alignment_) {
    reserved_ = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes + phase_ + alignment_;
    base_ = ::mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Mapping() {
    if (base_ != MAP_FAILED) ::munmap(base_, reserved_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* data() const {
    if (base_ == MAP_FAILED) return nullptr;
    const uintptr_t address = reinterpret_cast<uintptr_t>(base_);
    return reinterpret_cast<uint8_t*>((address + alignment_ - 1) / alignment_ * alignment_ + phase_);
  }
  // Maps memory or a file at the start. Returns false, with errno set, when the system refuses.
  bool fill(uint64_t bytes, int protection, int flags, int file, off_t offset) {
    return ::mmap(data(), bytes, protection, flags | MAP_FIXED, file, offset) != MAP_FAILED;
  }

 private:
  uint64_t alignment_, phase_;
  uint64_t reserved_;
  void* base_;
};

}  // namespace

Storage::~Storage() {
  if (born_ != fork_count()) return;
  for (const Attachment* next = attachments_.load(); next;) {
    const std::unique_ptr<const Attachment> attachment(next);
    next = attachment->next;
  }
}

std::shared_ptr<void> Storage::attached(const void* device) const {
  for (const Attachment* a = attachments_.load(std::memory_order_acquire); a; a = a->next)
    if (a->device == device) return a->value;
  return nullptr;
}

void Storage::attach(const void* device, std::shared_ptr<void> value) {
  auto* added = new Attachment{device, std::move(value), attachments_.load(std::memory_order_acquire)};
  while (!attachments_.compare_exchange_weak(added->next, added, std::memory_order_acq_rel)) continue;
}

std::shared_ptr<Storage> allocate_storage(uint64_t bytes) {
  const uint64_t length = bytes ? bytes : 1;
  std::shared_ptr<Mapping> mapping;
  if (bytes <= kLargestAllocation) mapping = std::make_shared<Mapping>(length);
  if (!mapping || !mapping->data() ||
      !mapping->fill(length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
    throw Error(ErrorKind::memory, "cannot allocate a buffer of " + std::to_string(bytes) + " bytes");
#if defined(MADV_HUGEPAGE)
  // Weights are read from end to end for every token: huge pages need far fewer address translations.
  if (bytes >= kHugePageBytes) ::madvise(mapping->data(), length, MADV_HUGEPAGE);
#endif
  return std::make_shared<Storage>(mapping->data(), bytes, /*writable=*/true, mapping, Reach::pages);
}

std::shared_ptr<Storage> map_file(const std::string& path, uint64_t offset, int64_t bytes) {
  return map_file(FileDescriptor(path), path, offset, bytes);
}

std::shared_ptr<Storage> map_file(int file, const std::string& path, uint64_t offset, int64_t bytes) {
  struct stat status;
  if (::fstat(file, &status) != 0)
    throw Error(ErrorKind::file, path + ": size cannot be read: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::file, path + ": expected a regular file");

  const uint64_t size = uint64_t(status.st_size);
  if (offset > size || (bytes >= 0 && uint64_t(bytes) > size - offset))
    throw Error(ErrorKind::format, path + ": expected bytes " + std::to_string(offset) + " to " +
                                       (bytes < 0 ? "the end" : std::to_string(offset + uint64_t(bytes))) +
                                       ", got a file of " + std::to_string(size) + " bytes");
  if (offset % kBufferAlignment)
    throw Error(ErrorKind::format, path + ": expected an offset that is a multiple of " +
                                       std::to_string(kBufferAlignment) + ", got " + std::to_string(offset));
  const uint64_t length = bytes < 0 ? size - offset : uint64_t(bytes);
  alignas(kBufferAlignment) static uint8_t nothing[1];
  if (length == 0) return std::make_shared<Storage>(nothing, 0, /*writable=*/false, nullptr);

  const uint64_t lead = offset % std::max(kPageBytes, page_bytes());
  // The system maps huge pages of its cache as such where file and memory have them in the same places.
  const auto mapping = std::make_shared<Mapping>(lead + length, offset - lead);
  if (!mapping->data() || !mapping->fill(lead + length, PROT_READ, MAP_SHARED, file, off_t(offset - lead)))
    throw Error(ErrorKind::file, path + ": cannot be mapped: " + std::strerror(errno));
  const auto mapped =
      std::make_shared<MappedFile>(path, status, offset + length, mapping->data(), lead + length, mapping);
  return std::make_shared<Storage>(mapping->data() + lead, length, /*writable=*/false, mapped, Reach::pages);
}

}  // namespace pyturbo
