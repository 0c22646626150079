#include "resources.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace soft_metal {
namespace {

std::atomic<uint64_t> allocated_bytes{0};

}  // namespace

uint64_t gpu_ticks() { return now() / 40; }

uint64_t now() {
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

std::shared_ptr<Memory> Memory::allocate(uint64_t length) {
  const uint64_t pages = (length + kPage - 1) / kPage * kPage;
  void* data = std::aligned_alloc(kPage, pages);
  if (!data) return nullptr;
  std::memset(data, 0, pages);
  auto memory = wrap(data, length);
  memory->owned = true;
  return memory;
}

std::shared_ptr<Memory> Memory::wrap(void* data, uint64_t length) {
  auto memory = std::make_shared<Memory>();
  memory->data = static_cast<uint8_t*>(data);
  memory->length = length;
  allocated_bytes += length;
  return memory;
}

uint64_t Memory::allocated() { return allocated_bytes; }

Memory::~Memory() {
  allocated_bytes -= length;
  if (owned) std::free(data);
}

bool Pipeline::takes(const pyturbo::ArgumentInfo& argument) const {
  if (argument.condition < 0) return true;
  const void* value = constants[argument.condition];
  return value && *static_cast<const uint8_t*>(value) != 0;
}

void Event::signal(uint64_t value) {
  const std::lock_guard lock(mutex_);
  value_ = value;
  changed_.notify_all();
}

uint64_t Event::value() const {
  const std::lock_guard lock(mutex_);
  return value_;
}

bool Event::wait(uint64_t value, uint32_t milliseconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return value_ >= value; });
}

}  // namespace soft_metal
