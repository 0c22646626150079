#include "cpu/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "pyturbo/process.h"

namespace pyturbo::cpu {
namespace {

constexpr uint64_t kChunksPerThread = 8;  // a short tail, without contention for the counter

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kSpin{100};   // longer than a gap between launches of one program, or between tokens
constexpr double kPatience = 1e-4;   // seconds more than saved that workers may cost before callers run alone
constexpr double kMostSaved = 5e-4;  // seconds that one job counts as saved at most
constexpr double kMemory = 0.98;     // decay of the seconds saved, per job
constexpr milliseconds kShortestRest{10}, kLongestRest{320};

constinit thread_local bool inside = false;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls for at most kSpin. Returns whether `ready` became true.
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

}  // namespace

// One parallel_for, on the stack of its caller. Each thread begins with its own range of items, so that it
// reads memory in order, and then helps with the ranges of others.
struct ThreadPool::Job {
  struct alignas(64) Range {
    std::atomic<uint64_t> next;
    uint64_t end;
  };

  void* fn;
  RangeFn call;
  uint64_t count;
  uint64_t chunk;
  Range* ranges;
  unsigned threads;
  std::atomic<bool> failed{false};
  std::exception_ptr error{};  // written by the thread that set failed first, read when all have left

  // Runs items on this thread, starting with range `place`. Returns the number of items it ran.
  uint64_t work(unsigned place) {
    uint64_t ran = 0;
    inside = true;
    try {
      for (unsigned i = 0; i < threads; ++i) ran += work_on(ranges[(place + i) % threads]);
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
      for (unsigned i = 0; i < threads; ++i) ranges[i].next.store(count, std::memory_order_relaxed);
    }
    inside = false;
    return ran;
  }

  uint64_t work_on(Range& mine) {
    uint64_t ran = 0;
    for (;;) {
      const uint64_t begin = mine.next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= mine.end) return ran;
      const uint64_t end = std::min(begin + chunk, mine.end);
      call(fn, begin, end);
      ran += end - begin;
    }
  }
};

// The worker threads of one process. Owner: the pool; after a fork the child drops them unjoined. One atomic
// word holds the state of the job, so that a spinning worker joins without a lock; sleeping threads are woken
// under one. On a busy machine a worker may be preempted in the middle of its share, and the caller waits
// longer than the worker saved it. Callers track the time saved and lost; when workers have cost more than
// they saved over the last jobs, callers run single-threaded for a while, four times as long each time that
// workers are still no use.
struct ThreadPool::Workers {
  // active (bits 0 to 15): workers inside the job; room (16 to 31): most workers allowed; open (32): the job
  // can be joined; number (33 to 63): identifies the job.
  static constexpr uint64_t kOpen = uint64_t(1) << 32;
  static constexpr uint64_t kJob = uint64_t(1) << 33;
  static uint64_t active(uint64_t state) { return state & 0xffff; }
  static uint64_t room(uint64_t state) { return (state >> 16) & 0xffff; }
  static uint64_t number(uint64_t state) { return state / kJob; }

  std::mutex turn;  // held by the caller whose job runs; guards rest, alone_until and saved
  Clock::duration rest = kShortestRest;
  double saved = 0;  // seconds that workers saved callers recently
  Clock::time_point alone_until{};
  Job* job = nullptr;  // read by workers that have joined it
  alignas(64) std::atomic<uint64_t> state{0};
  std::atomic<unsigned> sleepers{0};  // workers that wait for `wake`
  std::atomic<bool> waiting{false};   // the caller waits for `done`
  std::atomic<bool> stop{false};
  std::mutex lock;  // held to check a last time before sleeping, and to wake sleepers
  std::condition_variable wake, done;
  const uint32_t born = fork_count();
  std::vector<Job::Range> ranges;  // of the job
  std::vector<std::thread> threads;

  explicit Workers(unsigned count) : ranges(count + 1) {
    threads.reserve(count);
    try {
      while (threads.size() < count) threads.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      // The system has no more threads: the pool works with those that exist.
    }
  }

  ~Workers() {
    {
      const std::lock_guard<std::mutex> guard(lock);
      stop.store(true);
    }
    wake.notify_all();
    for (std::thread& t : threads) t.join();
  }

  // Returns the worker's 1-based index in the job, or 0 if it did not join. The job lives until its workers
  // have left. `seen`: number of the last job that the worker looked at.
  unsigned join(uint64_t& seen) {
    uint64_t now = state.load(std::memory_order_acquire);
    while (number(now) != seen && (now & kOpen) && active(now) < room(now))
      if (state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
        seen = number(now);
        return unsigned(active(now)) + 1;
      }
    seen = number(now);
    return 0;
  }

  void leave() {
    if (active(state.fetch_sub(1)) > 1 || !waiting.load()) return;
    {
      const std::lock_guard<std::mutex> guard(lock);
    }
    done.notify_one();
  }

  void serve() {
    uint64_t seen = 0;
    const auto ready = [&] { return stop.load() || number(state.load()) != seen; };
    for (;;) {
      if (!spin_until(ready)) {
        std::unique_lock<std::mutex> guard(lock);
        sleepers.fetch_add(1);
        wake.wait(guard, ready);
        sleepers.fetch_sub(1);
      }
      if (stop.load()) return;
      const unsigned place = join(seen);
      if (place == 0) continue;
      job->work(place);
      leave();
    }
  }

  void run(Job& mine) {
    const std::lock_guard<std::mutex> my_turn(turn);
    mine.ranges = ranges.data();
    for (uint64_t i = 0; i < mine.threads; ++i) {
      ranges[i].next.store(mine.count * i / mine.threads, std::memory_order_relaxed);
      ranges[i].end = mine.count * (i + 1) / mine.threads;
    }
    const Clock::time_point begun = Clock::now();
    if (begun < alone_until) {
      mine.work(0);
      return;
    }
    const unsigned helpers = mine.threads - 1;
    job = &mine;
    state.store((number(state.load()) + 1) * kJob | kOpen | uint64_t(helpers) << 16);
    if (sleepers.load() > 0) {
      {
        const std::lock_guard<std::mutex> guard(lock);
      }
      for (unsigned i = 0; i < helpers; ++i) wake.notify_one();
    }
    const uint64_t ran = mine.work(0);
    const Clock::time_point done_here = Clock::now();
    if (active(state.fetch_and(~kOpen)) > 0) wait_for_all();
    judge(done_here - begun, Clock::now() - done_here, double(ran) / double(mine.count));
  }

  void wait_for_all() {
    const auto all_left = [&] { return active(state.load()) == 0; };
    if (spin_until(all_left)) return;
    std::unique_lock<std::mutex> guard(lock);
    waiting.store(true);
    done.wait(guard, all_left);
    waiting.store(false);
  }

  // Updates the seconds saved, after a caller ran `share` of the items for `worked` and then waited for
  // `waited`.
  void judge(Clock::duration worked, Clock::duration waited, double share) {
    using Seconds = std::chrono::duration<double>;
    const double mine = Seconds(worked).count(), alone = share > 0 ? mine / share : mine;
    // A caller that was preempted itself seems to have worked long, hence kMostSaved.
    saved = kMemory * saved + std::min(alone - mine - Seconds(waited).count(), kMostSaved);
    if (saved < -kPatience) {
      alone_until = Clock::now() + rest;
      rest = std::min<Clock::duration>(4 * rest, kLongestRest);
      saved = 0;
    } else if (Clock::now() > alone_until + 2 * rest) {
      rest = kShortestRest;
    }
  }
};

ThreadPool::ThreadPool(unsigned threads) : threads_(std::max(threads, 1u)) {}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  Workers* mine = workers_.exchange(nullptr, std::memory_order_acq_rel);
  if (mine && mine->born == fork_count()) delete mine;
}

bool ThreadPool::busy() { return inside; }

// Returns the workers of this process. Those of a parent process are dropped: their threads do not exist
// here.
ThreadPool::Workers& ThreadPool::workers() {
  Workers* mine = workers_.load(std::memory_order_acquire);
  if (mine && mine->born == fork_count()) return *mine;
  Workers* fresh = new Workers(threads_ - 1);
  if (workers_.compare_exchange_strong(mine, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *mine;
}

void ThreadPool::run(uint64_t count, void* fn, RangeFn call) {
  const uint64_t chunk = std::max<uint64_t>(1, count / (threads_ * kChunksPerThread));
  const unsigned threads = unsigned(std::min<uint64_t>(threads_, (count + chunk - 1) / chunk));
  Job job{fn, call, count, chunk, nullptr, threads};
  workers().run(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace pyturbo::cpu
