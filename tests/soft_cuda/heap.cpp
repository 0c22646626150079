#include "heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "control.h"

namespace soft_cuda {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kDirty = 1 << 20;  // new memory holds garbage up to this byte

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Nobody can touch the page behind.
uint8_t* map(uint64_t bytes, int protection) {
  void* memory =
      ::mmap(nullptr, pages(bytes) + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::mprotect(memory, pages(bytes), protection);
  return static_cast<uint8_t*>(memory);
}

void unmap(void* memory, uint64_t bytes) { ::munmap(memory, pages(bytes) + kPage); }

const char* const kNames[] = {"memory", "pinned memory", "registered memory"};

}  // namespace

Block::~Block() {
  object_gone(kNames[kind]);
  if (kind == registered) return;
  if (data) unmap(data, bytes);
  if (kind == gpu && begin) unmap(reinterpret_cast<void*>(begin), bytes);
}

void Heap::add(const std::shared_ptr<Block>& block) {
  object_created(kNames[block->kind]);
  blocks_.emplace(block->begin, block);
}

std::shared_ptr<Block> Heap::allocate(uint64_t bytes, uint64_t limit, int device) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit || allocated_[device] + bytes > limit) return nullptr;
  auto block = std::make_shared<Block>();
  block->bytes = bytes;
  block->begin = reinterpret_cast<uint64_t>(map(bytes, PROT_NONE));
  block->data = map(bytes, PROT_READ | PROT_WRITE);
  std::memset(block->data, 0xa5, std::min(bytes, kDirty));
  block->device = device;
  allocated_[device] += bytes;
  add(block);
  return block;
}

std::shared_ptr<Block> Heap::allocate_host(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto block = std::make_shared<Block>();
  block->bytes = bytes;
  block->kind = Block::host;
  block->data = map(bytes, PROT_READ | PROT_WRITE);
  block->begin = reinterpret_cast<uint64_t>(block->data);
  std::memset(block->data, 0xa5, std::min(bytes, kDirty));
  add(block);
  return block;
}

std::shared_ptr<Block> Heap::add_host(void* memory, uint64_t bytes, bool read_only) {
  const std::lock_guard lock(mutex_);
  const uint64_t begin = reinterpret_cast<uint64_t>(memory);
  for (const auto& [known, block] : blocks_)
    if (known < begin + bytes && begin < known + block->bytes) return nullptr;
  auto block = std::make_shared<Block>();
  block->bytes = bytes;
  block->kind = Block::registered;
  block->data = static_cast<uint8_t*>(memory);
  block->begin = begin;
  block->read_only = read_only;
  add(block);
  return block;
}

std::shared_ptr<Block> Heap::remove(uint64_t begin, Block::Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(begin);
  if (found == blocks_.end() || found->second->kind != kind) return nullptr;
  auto block = found->second;
  blocks_.erase(found);
  if (kind == Block::gpu) allocated_[block->device] -= block->bytes;
  return block;
}

std::shared_ptr<Block> Heap::find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  const auto& block = std::prev(next)->second;
  return address < block->begin + block->bytes ? block : nullptr;
}

uint64_t Heap::allocated(int device) const {
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(device);
  return found == allocated_.end() ? 0 : found->second;
}

Heap& heap() {
  static Heap& instance = *new Heap;  // never destroyed: streams may run until the process ends
  return instance;
}

void fill(uint8_t* memory, uint8_t value, uint64_t bytes) {
  const uint64_t before = std::min(bytes, -reinterpret_cast<uint64_t>(memory) % kPage);
  const uint64_t whole = (bytes - before) / kPage * kPage;
  if (value != 0 || whole < kDirty || ::madvise(memory + before, whole, MADV_DONTNEED) != 0) {
    std::memset(memory, value, bytes);
    return;
  }
  std::memset(memory, 0, before);
  std::memset(memory + before + whole, 0, bytes - before - whole);
}

}  // namespace soft_cuda
