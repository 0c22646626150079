#include "cuda/upload.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/at_once.h"

namespace pyturbo::cuda {
namespace {

constexpr uint64_t kPieceBytes = uint64_t(1) << 26;

// A multiple of the pages of every processor.
constexpr uint64_t kPageBytes = uint64_t(1) << 16;

// Shorter pieces are not worth registering.
constexpr uint64_t kRegisteredBytes = uint64_t(1) << 20;

constexpr size_t kThreads = 4;

// Read-only memory of the host that is registered. Nothing happens where that is refused: the driver then
// copies through a buffer of its own.
class Registered {
 public:
  Registered(const Driver& driver, const uint8_t* data, uint64_t bytes) : driver_(driver) {
    void* const memory = const_cast<uint8_t*>(data);
    if (driver.host_register(memory, bytes, kHostRegisterPortable | kHostRegisterReadOnly) == Result::success)
      memory_ = memory;
  }
  ~Registered() {
    if (memory_) driver_.host_unregister(memory_);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const Driver& driver_;
  void* memory_ = nullptr;
};

// Pieces begin on whole pages, except for the first of an upload. One that is a page shorter than a piece
// stays whole wherever it lies.
std::vector<Upload> pieces_of(std::span<const Upload> uploads) {
  std::vector<Upload> pieces;
  for (const Upload& upload : uploads) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(upload.from), end = begin + upload.bytes;
    for (uintptr_t place = begin; place < end;) {
      const uint64_t bytes = std::min(end, place / kPageBytes * kPageBytes + kPieceBytes) - place;
      pieces.push_back({upload.to + (place - begin), reinterpret_cast<const uint8_t*>(place), bytes});
      place += bytes;
    }
  }
  return pieces;
}

}  // namespace

void upload(Stream& stream, std::span<const Upload> uploads,
            const std::function<void(uint64_t done)>& progress) {
  const std::shared_ptr<Context>& context = stream.context();
  const bool registers = context->attribute(Attribute::read_only_host_register_supported);
  const std::vector<Upload> pieces = pieces_of(uploads);
  std::atomic<size_t> next{0};
  std::mutex mutex;  // guards `done`
  uint64_t done = 0;
  at_once(kThreads, std::min(kThreads, pieces.size()), [&](size_t) {
    const Current current(*context);
    Stream own(context);
    for (size_t i = next.fetch_add(1); i < pieces.size(); i = next.fetch_add(1)) {
      const Upload& piece = pieces[i];
      std::unique_ptr<Registered> registered;
      if (registers && piece.bytes >= kRegisteredBytes)
        registered = std::make_unique<Registered>(own.driver(), piece.from, piece.bytes);
      try {
        own.copied("copy of a file", own.driver().copy_in(piece.to, piece.from, piece.bytes, own.handle()));
        own.synchronize();
      } catch (...) {
        next.store(pieces.size());
        throw;
      }
      const std::lock_guard lock(mutex);
      done += piece.bytes;
      if (progress) progress(done);
    }
  });
}

}  // namespace pyturbo::cuda
