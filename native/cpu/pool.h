// Persistent worker threads of the CPU devices.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace pyturbo::cpu {

// Spreads independent work over the calling thread and threads - 1 workers, which start when first needed.
// Owner: a device. Any thread may call parallel_for; one lock serialises the calls, and a call from inside fn
// runs serially. A forked child starts its own workers. Workers and waiting callers spin briefly, then sleep.
// When workers have cost callers more time than they saved over the last jobs, callers run single-threaded
// for a while.
class ThreadPool {
 public:
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return threads_; }

  // Ends the workers while no parallel_for is running. The next parallel_for starts new ones.
  void stop();

  // Calls fn(i) once for each i < count and returns when all calls have returned. After an exception no
  // further work starts, and the first exception is rethrown here.
  template <typename F>
  void parallel_for(uint64_t count, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    if (count <= 1 || threads_ == 1 || busy()) {
      for (uint64_t i = 0; i < count; ++i) fn(i);
      return;
    }
    run(count, const_cast<void*>(static_cast<const void*>(&fn)), [](void* f, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) (*static_cast<Fn*>(f))(i);
    });
  }

 private:
  struct Job;
  struct Workers;
  using RangeFn = void (*)(void* fn, uint64_t begin, uint64_t end);

  static bool busy();  // this thread is inside a parallel_for
  void run(uint64_t count, void* fn, RangeFn call);
  Workers& workers();

  unsigned threads_;
  std::atomic<Workers*> workers_{nullptr};
};

}  // namespace pyturbo::cpu
