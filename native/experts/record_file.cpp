#include "experts/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/file_time.h"
#include "pyturbo/error.h"

namespace pyturbo::experts {
namespace {

using std::chrono::milliseconds;

// Pauses before a failed read is repeated. A disk that resets its link needs some hundred milliseconds.
constexpr milliseconds kPauses[] = {milliseconds(5), milliseconds(50), milliseconds(300)};
constexpr milliseconds kSlice{5};  // of a pause, after which it may end

// A pipe must not make it wait.
int plain_open(const char* path, int flags) { return ::open(path, flags | O_CLOEXEC | O_NONBLOCK); }

bool may_pass(int error) { return error == EIO || error == EAGAIN || error == ENOMEM || error == ETIMEDOUT; }

// Returns false when `stop` ended the pause.
bool pause(milliseconds time, const std::atomic<bool>& stop) {
  for (; time > milliseconds(0); time -= kSlice) {
    if (stop.load()) return false;
    std::this_thread::sleep_for(std::min(time, kSlice));
  }
  return !stop.load();
}

// Opens the file, past the page cache if `direct` and where that is possible; tells which in `direct`.
int open_file(const char* path, bool& direct) {
#if defined(O_DIRECT)
  if (direct) {
    const int file = file_calls.open.load()(path, O_RDONLY | O_DIRECT);
    if (file >= 0) return file;
    direct = false;
  }
  return file_calls.open.load()(path, O_RDONLY);
#else
  const int file = file_calls.open.load()(path, O_RDONLY);
  direct = direct && file >= 0 && ::fcntl(file, F_NOCACHE, 1) == 0;
  return file;
#endif
}

}  // namespace

constinit FileCalls file_calls{plain_open, ::pread};

RecordFile::RecordFile(const ExpertFile& file, uint64_t stride, bool direct)
    : path_(file.path), stride_(stride), file_(open_file(path_.c_str(), direct)), direct_(direct) {
  if (file_ < 0) throw Error(ErrorKind::file, path_ + ": cannot be opened: " + std::strerror(errno));
  const uint64_t expected = file.experts * stride;
  std::string wrong;
  ErrorKind kind = ErrorKind::file;
  if (::fstat(file_, &status_) != 0) {
    wrong = std::string("size cannot be read: ") + std::strerror(errno);
  } else if (!S_ISREG(status_.st_mode)) {
    wrong = "expected a regular file";
  } else if (uint64_t(status_.st_size) != expected) {
    kind = ErrorKind::format;
    wrong = "expected " + std::to_string(file.experts) + " records of " + std::to_string(stride) +
            " bytes (" + std::to_string(expected) + " bytes), got " + std::to_string(status_.st_size) +
            " bytes";
  }
  if (!wrong.empty()) {
    ::close(file_);
    throw Error(kind, path_ + ": " + wrong);
  }
#if defined(POSIX_FADV_RANDOM)
  // Readahead is of no use to parts of a record that several threads read at once.
  ::posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM);
#endif
}

RecordFile::~RecordFile() { ::close(file_); }

// The flag goes first: a thread that takes it for gone reads at any offset.
void RecordFile::use_cache() {
#if defined(O_DIRECT)
  ::fcntl(file_, F_SETFL, ::fcntl(file_, F_GETFL) & ~O_DIRECT);
#else
  ::fcntl(file_, F_NOCACHE, 0);
#endif
  direct_.store(false);
}

void RecordFile::require_unchanged() const {
  struct stat now;
  if (::fstat(file_, &now) != 0)
    throw Error(ErrorKind::file, path_ + ": size cannot be read: " + std::strerror(errno));
  if (now.st_size < status_.st_size)
    throw Error(ErrorKind::file, path_ + ": became shorter while it was in use: expected " +
                                     std::to_string(status_.st_size) + " bytes, got " +
                                     std::to_string(now.st_size) + "; load the model again");
  if (now.st_size != status_.st_size || changed_at(now) != changed_at(status_))
    throw Error(ErrorKind::file,
                path_ + ": was written to, or touched, after it was opened; load the model again");
}

void RecordFile::read(uint32_t expert, uint64_t begin, uint64_t bytes, uint8_t* memory,
                      const std::atomic<bool>& stop, uint64_t& calls) {
  const auto refuse = [&](uint64_t done, const std::string& why) {
    throw Error(ErrorKind::file, path_ + ": expert " + std::to_string(expert) + ": expected bytes " +
                                     std::to_string(begin + done) + " to " + std::to_string(begin + bytes) +
                                     " of its record, got " + why);
  };
  size_t failures = 0;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t offset = expert * stride_ + begin + done;
    const bool past_cache = direct();
    ++calls;
    const ssize_t got = file_calls.read.load()(file_, memory + done, bytes - done, off_t(offset));
    const int error = errno;
    if (got > 0) {
      done += uint64_t(got);
      // After a short read a direct one starts again at its last block. Without a whole block it never ends.
      const uint64_t rest = past_cache ? done % kDirectAlignment : 0;
      if (rest > 0 && uint64_t(got) < kDirectAlignment)
        use_cache();
      else
        done -= rest;
    } else if (got == 0) {
      refuse(done, "the end of the file at byte " + std::to_string(offset));
    } else if (error == EINTR) {
      if (stop.load()) throw Error(ErrorKind::state, path_ + ": reading was stopped");
    } else if (error == EINVAL && past_cache) {
      use_cache();
    } else if (may_pass(error) && failures < std::size(kPauses)) {
      if (!pause(kPauses[failures++], stop)) throw Error(ErrorKind::state, path_ + ": reading was stopped");
    } else {
      refuse(done, std::string(std::strerror(error)) +
                       (failures ? " in " + std::to_string(failures + 1) + " attempts" : ""));
    }
  }
  require_unchanged();
}

}  // namespace pyturbo::experts
