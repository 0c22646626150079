#include "cpu/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "native_test.h"

namespace {

using pyturbo::cpu::ThreadPool;

uint64_t sum_with(ThreadPool& pool, uint64_t count) {
  std::vector<uint32_t> seen(count);
  pool.parallel_for(count, [&](uint64_t i) { ++seen[i]; });
  for (uint32_t s : seen) CHECK_EQ(s, 1u);
  return std::accumulate(seen.begin(), seen.end(), uint64_t(0));
}

}  // namespace

NATIVE_TEST(pool_calls_each_index_once) {
  for (unsigned threads : {0u, 1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (uint64_t count : {0u, 1u, 2u, 3u, 17u, 1000u, 100003u}) CHECK_EQ(sum_with(pool, count), count);
  }
}

NATIVE_TEST(pool_runs_one_item_on_the_caller) {
  ThreadPool pool(4);
  std::thread::id ran;
  pool.parallel_for(1, [&](uint64_t) { ran = std::this_thread::get_id(); });
  CHECK(ran == std::this_thread::get_id());
}

NATIVE_TEST(pool_uses_several_threads) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  // Each of the three items waits for the other two.
  pool.parallel_for(3, [&](uint64_t) {
    ++inside;
    while (inside.load() < 3) std::this_thread::yield();
  });
  CHECK_EQ(inside.load(), 3);
}

NATIVE_TEST(pool_goes_on_alone_when_workers_are_held_up) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  // Two items that wait for each other; then the worker stays for so long.
  const auto meet = [&](std::chrono::milliseconds held) {
    std::atomic<int> inside{0};
    pool.parallel_for(2, [&](uint64_t) {
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();
      if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(held);
    });
    CHECK_EQ(inside.load(), 2);
  };
  meet(0ms);  // the worker has started
  meet(100ms);
  const Clock::time_point begin = Clock::now();
  int elsewhere = 0;
  for (int i = 0; i < 5; ++i)
    pool.parallel_for(8, [&](uint64_t) { elsewhere += std::this_thread::get_id() != caller; });
  if (Clock::now() - begin < 8ms) CHECK_EQ(elsewhere, 0);  // a rest has at least 10
  // After its rest it uses them again.
  std::this_thread::sleep_for(50ms);
  meet(0ms);
}

NATIVE_TEST(pool_keeps_workers_that_save_more_than_they_cost) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  // Runs two items of a millisecond each; the worker stays longer. Returns how long it took.
  const auto meet = [&](std::chrono::milliseconds longer) {
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(2, [&](uint64_t) {
      const bool worker = std::this_thread::get_id() != caller;
      elsewhere += worker;
      std::this_thread::sleep_for(worker ? 1ms + longer : 1ms);
    });
    return Clock::now() - begin;
  };
  bool calm = true;  // on a busy machine nothing is known
  for (int i = 0; i < 20; ++i) calm &= meet(0ms) < 2ms;
  calm &= meet(3ms) < 5ms;
  elsewhere = 0;
  for (int i = 0; i < 3; ++i) meet(0ms);  // alone they take 6 ms, and a rest has at least 10
  if (calm) CHECK(elsewhere.load() > 0);
}

NATIVE_TEST(pool_rethrows_and_goes_on) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<uint64_t> calls{0};
    CHECK_THROWS(pool.parallel_for(100000,
                                   [&](uint64_t i) {
                                     ++calls;
                                     if (i == 7) throw std::runtime_error("item seven");
                                   }),
                 "item seven");
    CHECK(calls.load() < 100000);
    CHECK_EQ(sum_with(pool, 100), 100u);
  }
}

NATIVE_TEST(pool_nested_calls_are_serial) {
  ThreadPool pool(3);
  std::atomic<uint64_t> calls{0};
  pool.parallel_for(20, [&](uint64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    pool.parallel_for(30, [&](uint64_t) {
      if (std::this_thread::get_id() == outer) ++calls;
    });
  });
  CHECK_EQ(calls.load(), 600u);
}

NATIVE_TEST(pool_serves_several_callers) {
  ThreadPool pool(3);
  std::atomic<uint64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) pool.parallel_for(50, [&](uint64_t) { ++sum; });
    });
  }
  for (std::thread& c : callers) c.join();
  CHECK_EQ(sum.load(), 4u * 200 * 50);
}

NATIVE_TEST(pool_works_in_a_forked_child) {
  ThreadPool pool(3);
  CHECK_EQ(sum_with(pool, 1000), 1000u);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    std::atomic<uint64_t> sum{0};
    alarm(20);
    for (int i = 0; i < 20; ++i) pool.parallel_for(100, [&](uint64_t) { ++sum; });
    _exit(sum.load() == 2000 ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_EQ(sum_with(pool, 1000), 1000u);
}
