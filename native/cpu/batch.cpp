#include "cpu/batch.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "pyturbo/error.h"

namespace pyturbo::cpu {
namespace {

constexpr double kWorthSharing = 4000;  // nanoseconds; waking a spinning thread costs about 1000
constexpr double kShortestPiece = kWorthSharing / 2;
constexpr double kPiecesPerThread = 4;
constexpr size_t kLine = 64;
constexpr size_t kLeastBlock = size_t(1) << 16;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Memory that is allocated in order and freed all at once. If one block is too small, further blocks are
// allocated, and the next block after reset() is large enough for all. Owner: one thread.
class Arena {
 public:
  void* take(size_t bytes) {
    const size_t size = (std::max<size_t>(bytes, 1) + kLine - 1) / kLine * kLine;
    if (blocks_.empty() || size > size_ - used_) grow(std::max(size, wanted_));
    used_ += size;
    total_ += size;
    return static_cast<uint8_t*>(blocks_.back().get()) + (used_ - size);
  }
  void reset() noexcept {
    if (blocks_.size() > 1) {
      blocks_.clear();
      wanted_ = total_;
      size_ = 0;
    }
    used_ = total_ = 0;
  }

 private:
  void grow(size_t bytes) {
    const size_t size = std::max(bytes, kLeastBlock);
    void* block = std::aligned_alloc(kLine, size);
    if (!block)
      throw Error(ErrorKind::memory, "cannot allocate " + std::to_string(bytes) + " bytes for a launch");
    blocks_.emplace_back(block);
    wanted_ = 0;
    size_ = size;
    used_ = 0;
  }

  std::vector<std::unique_ptr<void, Free>> blocks_;
  size_t size_ = 0;    // of the last block
  size_t used_ = 0;    // of it
  size_t total_ = 0;   // handed out since reset
  size_t wanted_ = 0;  // least size of the next block
};

Arena& arena() {
  static thread_local Arena mine;
  return mine;
}

}  // namespace

void* Batch::memory(size_t bytes) { return arena().take(bytes); }

// Not inline: bodies of every level add work, and must not bring their own copies of the vectors' functions.
void Batch::add(const Work& work) { work_.push_back(work); }
void Batch::note(const Made& what, void* memory) { made_.push_back({what, memory}); }

void* Batch::find(const Made& what) const {
  for (const Noted& noted : made_)
    if (noted.what == what) return noted.memory;
  return nullptr;
}

void Batch::clear() {
  work_.clear();
  made_.clear();
  arena().reset();
}

void Batch::run() {
  double total = 0;
  for (const Work& work : work_) total += double(work.count) * work.nanoseconds;
  if (pool_.threads() == 1 || total < kWorthSharing) {
    for (const Work& work : work_) work.call(work.fn, 0, work.count);
    return clear();
  }
  struct Piece {
    const Work* work;
    uint64_t begin, end;
  };
  static thread_local std::vector<Piece> pieces;
  pieces.clear();
  const double each = std::max(total / (pool_.threads() * kPiecesPerThread), kShortestPiece);
  for (const Work& work : work_) {
    const double wanted = double(work.count) * work.nanoseconds / each;
    const uint64_t count = std::clamp<uint64_t>(uint64_t(wanted + 0.5), 1, std::max<uint64_t>(work.count, 1));
    for (uint64_t i = 0; i < count; ++i)
      pieces.push_back({&work, work.count * i / count, work.count * (i + 1) / count});
  }
  const Piece* all = pieces.data();  // of this thread, although any thread may run them
  pool_.parallel_for(pieces.size(),
                     [all](uint64_t i) { all[i].work->call(all[i].work->fn, all[i].begin, all[i].end); });
  clear();
}

}  // namespace pyturbo::cpu
