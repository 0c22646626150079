// The same work for many things, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace pyturbo {

// Calls work(i) for each i < count on up to `threads` threads, of which the caller is one. Rethrows the first
// exception.
template <typename Work>
void at_once(size_t threads, size_t count, const Work& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        work(i);
      } catch (...) {
        next.store(count);
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    struct Helpers : std::vector<std::thread> {  // not every library has std::jthread
      ~Helpers() {
        for (std::thread& helper : *this) helper.join();
      }
    } helpers;
    for (size_t i = 1; i < std::min(threads, count); ++i) helpers.emplace_back(run);
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pyturbo
