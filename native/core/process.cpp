#include "pyturbo/process.h"

#include <pthread.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pyturbo {
namespace {

constexpr uint32_t kMostMutexes = 8;

constinit std::atomic<uint32_t> forks{0};
constinit std::mutex* held[kMostMutexes] = {};
constinit std::atomic<uint32_t> held_count{0};
constinit uint32_t taken = 0;  // number of mutexes locked by the current fork
constinit std::atomic<bool> ends{false};
std::atomic<std::thread::id> ending{};

void before_fork() {
  const uint32_t count = held_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) held[i]->lock();
  taken = count;
}

void after_fork() {
  for (uint32_t i = taken; i > 0; --i) held[i - 1]->unlock();
}

void after_fork_in_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  ends.store(false);
  after_fork();
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork, after_fork_in_child);

// Owner: the process, which never destroys it. Any thread; one lock.
struct Closing {
  std::mutex mutex;
  std::vector<std::weak_ptr<ClosedAtEnd>> all;

  Closing() { hold_across_forks(mutex); }
};

Closing& closing() {
  static Closing& instance = *new Closing;
  return instance;
}

}  // namespace

uint32_t fork_count() { return forks.load(std::memory_order_relaxed); }

void hold_across_forks(std::mutex& mutex) {
  static std::mutex& adding = *new std::mutex;
  const std::lock_guard lock(adding);
  const uint32_t count = held_count.load(std::memory_order_relaxed);
  if (count == kMostMutexes) throw std::length_error("hold_across_forks: expected at most 8 mutexes");
  held[count] = &mutex;
  held_count.store(count + 1, std::memory_order_release);
}

void close_at_end(const std::shared_ptr<ClosedAtEnd>& object) {
  Closing& objects = closing();
  const std::lock_guard lock(objects.mutex);
  std::erase_if(objects.all, [](const std::weak_ptr<ClosedAtEnd>& known) { return known.expired(); });
  objects.all.push_back(object);
}

void end_process() {
  ending.store(std::this_thread::get_id());
  ends.store(true);
  std::vector<std::weak_ptr<ClosedAtEnd>> objects;
  {
    const std::lock_guard lock(closing().mutex);
    objects.swap(closing().all);
  }
  for (auto known = objects.rbegin(); known != objects.rend(); ++known)
    if (const std::shared_ptr<ClosedAtEnd> object = known->lock()) object->close();
}

bool process_ends() { return ends.load(std::memory_order_relaxed); }

bool process_ends_elsewhere() { return ends.load() && ending.load() != std::this_thread::get_id(); }

}  // namespace pyturbo
