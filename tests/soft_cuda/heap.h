// Memory of the soft GPU and pinned memory of the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace soft_cuda {

// An allocation. Memory of the GPU is seen by the program at addresses that nobody can touch, and by kernels
// and copies at others. Owner: the heap, and work that uses it.
struct Block {
  uint64_t begin = 0;  // as the program sees it
  uint64_t bytes = 0;
  uint8_t* data = nullptr;  // as kernels see it
  enum Kind { gpu, host, registered } kind = gpu;
  bool read_only = false;    // registered so
  int device = 0;            // whose memory it is
  std::atomic<int> uses{0};  // by work that has not ended

  Block() = default;
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
};

// Owner: the process. Any thread; one lock.
class Heap {
 public:
  // Null when there is not enough memory.
  std::shared_ptr<Block> allocate(uint64_t bytes, uint64_t limit, int device);
  std::shared_ptr<Block> allocate_host(uint64_t bytes);
  // Null when a part of it is registered already.
  std::shared_ptr<Block> add_host(void* memory, uint64_t bytes, bool read_only);

  // Removes the block of this kind that begins there. Null when there is none.
  std::shared_ptr<Block> remove(uint64_t begin, Block::Kind kind);

  // The block that holds this address; null when there is none.
  std::shared_ptr<Block> find(uint64_t address) const;

  uint64_t allocated(int device) const;  // bytes

 private:
  void add(const std::shared_ptr<Block>& block);

  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Block>> blocks_;  // by begin
  std::map<int, uint64_t> allocated_;                  // by device
};

Heap& heap();

// Sets memory of the GPU. Whole pages that become zero are given back to the system.
void fill(uint8_t* memory, uint8_t value, uint64_t bytes);

}  // namespace soft_cuda
