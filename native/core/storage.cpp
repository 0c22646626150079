#include "pyturbo/storage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pyturbo/error.h"

namespace pyturbo {
namespace {

constexpr uint64_t kLargestAllocation = uint64_t(1) << 46;  // beyond any address space a host offers

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

// Unmaps a stretch of memory when the last buffer over it goes.
std::shared_ptr<void> own_mapping(void* base, uint64_t bytes) {
  return {base, [bytes](void* mapped) { ::munmap(mapped, bytes); }};
}

}  // namespace

std::shared_ptr<Storage> allocate_storage(uint64_t bytes) {
  const uint64_t length = bytes ? bytes : 1;
  void* base = MAP_FAILED;
  if (bytes <= kLargestAllocation)
    base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    throw Error(ErrorKind::memory, "cannot allocate a buffer of " + std::to_string(bytes) + " bytes");
  return std::make_shared<Storage>(base, bytes, /*writable=*/true, own_mapping(base, length));
}

std::shared_ptr<Storage> map_file(const std::string& path, uint64_t offset, int64_t bytes) {
  FileDescriptor file(path);
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

  const uint64_t page = uint64_t(::sysconf(_SC_PAGESIZE));
  const uint64_t lead = offset % page;
  void* base = ::mmap(nullptr, lead + length, PROT_READ, MAP_SHARED, file, off_t(offset - lead));
  if (base == MAP_FAILED) throw Error(ErrorKind::file, path + ": cannot be mapped: " + std::strerror(errno));
  return std::make_shared<Storage>(static_cast<uint8_t*>(base) + lead, length, /*writable=*/false,
                                   own_mapping(base, lead + length));
}

}  // namespace pyturbo
