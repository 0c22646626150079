#include "read_faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "experts/record_file.h"

namespace {

using pyturbo::experts::file_calls;

#if defined(O_DIRECT)
constexpr int kDirect = O_DIRECT;
#else
constexpr int kDirect = 0;
#endif

enum class Kind { error, shortened, end, slow, direct, open };

const auto plain_open = file_calls.open.load();
const auto plain_read = file_calls.read.load();

std::atomic<Kind> kind;
std::atomic<int64_t> value;
std::atomic<uint64_t> first, count, reads;

int fail(int error) {
  errno = error;
  return -1;
}

ssize_t faulty_read(int file, void* memory, size_t bytes, off_t offset) {
  const uint64_t number = reads.fetch_add(1);
  if (number >= first.load() && number - first.load() < count.load()) switch (kind.load()) {
      case Kind::error:
        return fail(int(value.load()));
      case Kind::shortened:
        return plain_read(file, memory, std::min(bytes, size_t(value.load())), offset);
      case Kind::end:
        return 0;
      case Kind::slow:
        std::this_thread::sleep_for(std::chrono::milliseconds(value.load()));
        break;
      case Kind::direct:
        if (::fcntl(file, F_GETFL) & kDirect) return fail(EINVAL);
        break;
      case Kind::open:
        break;
    }
  return plain_read(file, memory, bytes, offset);
}

int faulty_open(const char* path, int flags) {
  return kind.load() == Kind::open && (flags & kDirect) ? fail(EINVAL) : plain_open(path, flags);
}

Kind kind_of(const std::string& name) {
  if (name == "error") return Kind::error;
  if (name == "short") return Kind::shortened;
  if (name == "end") return Kind::end;
  if (name == "slow") return Kind::slow;
  if (name == "direct") return Kind::direct;
  if (name == "open") return Kind::open;
  throw std::invalid_argument("no kind of fault named " + name);
}

}  // namespace

void set_read_faults(const std::string& name, int64_t given, uint64_t from, uint64_t number) {
  clear_read_faults();
  kind.store(kind_of(name));
  value.store(given);
  first.store(from);
  count.store(number);
  reads.store(0);
  file_calls.open.store(faulty_open);
  file_calls.read.store(faulty_read);
}

void clear_read_faults() {
  file_calls.open.store(plain_open);
  file_calls.read.store(plain_read);
}

uint64_t faulty_reads() { return reads.load(); }
