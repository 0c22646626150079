#include "cpu/pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pyturbo::cpu {
namespace {

constexpr uint64_t kChunksPerThread = 8;  // small enough tails without a counter that everybody fights over

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kSpin{50};  // longer than a gap between launches of one program
constexpr microseconds kPatience{
    100};  // beyond the time of its own share, a caller waits so long for workers
constexpr milliseconds kShortestRest{10}, kLongestRest{320};

std::atomic<uint32_t> forks{0};  // how many forks lie behind this process

constinit thread_local bool inside = false;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks again and again for at most kSpin; returns whether `ready` came true.
template <typename Ready>
bool spin_until(const Ready& ready) {
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

void count_forks() {
  static std::once_flag once;
  std::call_once(
      once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }); });
}

}  // namespace

// One parallel_for; lives on the stack of its caller.
struct ThreadPool::Job {
  void* fn;
  RangeFn call;
  uint64_t count;
  uint64_t chunk;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error{};  // written by the thread that set failed first, read when all have left

  void work() {
    inside = true;
    try {
      for (;;) {
        const uint64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
        if (begin >= count) break;
        call(fn, begin, std::min(begin + chunk, count));
      }
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
      next.store(count, std::memory_order_relaxed);
    }
    inside = false;
  }
};

// The worker threads of one process. Owner: the pool; after a fork the child drops them unjoined.
// Where something else keeps the processors busy, a worker may be stopped in the middle of its share, and the
// caller waits for longer than it worked. It then goes on alone for a while, twice as long each time that it
// was no use to come back.
struct ThreadPool::Workers {
  std::mutex turn;  // held by the caller whose job runs; guards rest and alone_until
  Clock::duration rest = kShortestRest;
  Clock::time_point alone_until{};
  std::mutex lock;  // guards job, room, active, stop
  std::condition_variable wake, done;
  Job* job = nullptr;
  unsigned room = 0;    // workers that may still join the job
  unsigned active = 0;  // workers inside the job
  bool stop = false;
  std::atomic<uint64_t> jobs{0};     // begun so far, for spinning workers
  std::atomic<unsigned> running{0};  // mirrors active, for a spinning caller
  const uint32_t born = forks.load(std::memory_order_relaxed);
  std::vector<std::thread> threads;

  explicit Workers(unsigned count) {
    threads.reserve(count);
    try {
      while (threads.size() < count) threads.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      // The system has no more threads: the work is done by those that exist.
    }
  }

  ~Workers() {
    {
      const std::lock_guard<std::mutex> guard(lock);
      stop = true;
      jobs.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
    for (std::thread& t : threads) t.join();
  }

  void serve() {
    uint64_t seen = 0;
    for (;;) {
      spin_until([&] { return jobs.load(std::memory_order_acquire) != seen; });
      std::unique_lock<std::mutex> guard(lock);
      wake.wait(guard, [&] { return stop || jobs.load(std::memory_order_relaxed) != seen; });
      if (stop) return;
      seen = jobs.load(std::memory_order_relaxed);
      if (!job || room == 0) continue;
      --room;
      ++active;
      running.store(active, std::memory_order_relaxed);
      Job* mine = job;
      guard.unlock();
      mine->work();
      guard.lock();
      running.store(--active, std::memory_order_relaxed);
      if (active == 0) done.notify_one();
    }
  }

  void run(Job& mine, unsigned helpers) {
    const std::lock_guard<std::mutex> my_turn(turn);
    const Clock::time_point begun = Clock::now();
    if (begun < alone_until) return mine.work();
    {
      const std::lock_guard<std::mutex> guard(lock);
      job = &mine;
      room = helpers;
      jobs.fetch_add(1, std::memory_order_release);
    }
    for (unsigned i = 0; i < helpers; ++i) wake.notify_one();
    mine.work();
    std::unique_lock<std::mutex> guard(lock);
    job = nullptr;  // nobody joins from here on
    if (active == 0) return;
    guard.unlock();
    const Clock::time_point done_here = Clock::now();
    spin_until([&] { return running.load(std::memory_order_relaxed) == 0; });
    guard.lock();
    done.wait(guard, [&] { return active == 0; });
    judge(done_here - begun, Clock::now() - done_here);
  }

  // Whether workers were of use to a caller who worked for so long and then waited for so long.
  void judge(Clock::duration worked, Clock::duration waited) {
    if (waited > worked + kPatience) {
      alone_until = Clock::now() + rest;
      rest = std::min<Clock::duration>(2 * rest, kLongestRest);
    } else if (Clock::now() > alone_until + rest) {
      rest = kShortestRest;
    }
  }
};

ThreadPool::ThreadPool(unsigned threads) : threads_(std::max(threads, 1u)) { count_forks(); }

ThreadPool::~ThreadPool() {
  Workers* mine = workers_.load(std::memory_order_acquire);
  if (mine && mine->born == forks.load(std::memory_order_relaxed)) delete mine;
}

bool ThreadPool::busy() { return inside; }

// The workers of this process. Those of a parent process are dropped: their threads do not exist here.
ThreadPool::Workers& ThreadPool::workers() {
  Workers* mine = workers_.load(std::memory_order_acquire);
  if (mine && mine->born == forks.load(std::memory_order_relaxed)) return *mine;
  Workers* fresh = new Workers(threads_ - 1);
  if (workers_.compare_exchange_strong(mine, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *mine;
}

void ThreadPool::run(uint64_t count, void* fn, RangeFn call) {
  const uint64_t chunk = std::max<uint64_t>(1, count / (threads_ * kChunksPerThread));
  const uint64_t chunks = (count + chunk - 1) / chunk;
  Job job{fn, call, count, chunk};
  workers().run(job, unsigned(std::min<uint64_t>(threads_, chunks) - 1));
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace pyturbo::cpu
