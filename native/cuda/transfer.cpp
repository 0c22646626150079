#include "cuda/transfer.h"

#include <cstring>

namespace pyturbo::cuda {
namespace {

constexpr uint64_t kPinnedBytes = uint64_t(1) << 20;  // the logits of a vocabulary of 262144 tokens
constexpr uint64_t kSmallBytes = uint64_t(1) << 16;
constexpr uint64_t kWriteAlignment = 64;

}  // namespace

Transfer::Transfer(Memory& memory, Stream& stream)
    : memory_(memory),
      stream_(stream),
      from_gpu_(memory.allocate_shared(kPinnedBytes)),
      to_gpu_(memory.allocate_shared(kPinnedBytes)) {}

void Transfer::read(void* to, Address from, uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(reading_);
  const bool pinned = bytes <= from_gpu_->bytes();
  void* const place = pinned ? from_gpu_->data() : to;
  stream_.copied("read", stream_.driver().copy_out(place, from, bytes, stream_.handle()));
  stream_.synchronize();
  if (pinned) std::memcpy(to, place, bytes);
}

void Transfer::write(Address to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(writing_);
  if (bytes > kSmallBytes) {
    stream_.copied("write", stream_.driver().copy_in(to, from, bytes, stream_.handle()));
    stream_.synchronize();  // the driver may still read it if it is pinned
    return;
  }
  const bool full = used_ + bytes > to_gpu_->bytes();
  if (full) stream_.synchronize();
  if (full || stream_.idle()) used_ = 0;
  uint8_t* const place = to_gpu_->data() + used_;
  std::memcpy(place, from, bytes);
  used_ += (bytes + kWriteAlignment - 1) / kWriteAlignment * kWriteAlignment;
  stream_.copied("write", stream_.driver().copy_in(to, place, bytes, stream_.handle()));
}

// The driver's copy is undefined where the two overlap.
void Transfer::copy(Address to, Address from, uint64_t bytes) {
  if (bytes == 0 || to == from) return;
  const auto copied = [&](Address to, Address from) {
    stream_.copied("copy", stream_.driver().copy_within(to, from, bytes, stream_.handle()));
  };
  if (to + bytes <= from || from + bytes <= to) return copied(to, from);
  const std::shared_ptr<Storage> between = memory_.allocate(bytes);
  const Address place = reinterpret_cast<uintptr_t>(between->data());
  copied(place, from);
  copied(to, place);
}

}  // namespace pyturbo::cuda
