// Launches that do not wait for one another, run together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cpu/pool.h"
#include "pyturbo/device_kind.h"

namespace pyturbo::cpu {

// Collects the work of launches as items that any thread may run, and runs them over the pool: large launches
// are cut into pieces, small ones keep each other company. Owner: one run of a device, on its thread.
class Batch {
 public:
  explicit Batch(ThreadPool& pool, Precision precision = Precision::standard)
      : pool_(pool), precision_(precision) {}
  ~Batch() { clear(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  ThreadPool& pool() { return pool_; }
  Precision precision() const { return precision_; }

  // `count` items that take about `nanoseconds` each. fn(begin, end) is copied, and called by run() on any
  // threads so that every item is in one range.
  template <typename Fn>
  void add(uint64_t count, double nanoseconds, const Fn& fn) {
    static_assert(std::is_trivially_copyable_v<Fn>);
    void* copy = memory(sizeof(Fn));
    std::memcpy(copy, &fn, sizeof(Fn));
    add({count, nanoseconds, copy,
         [](const void* f, uint64_t begin, uint64_t end) { (*static_cast<const Fn*>(f))(begin, end); }});
  }

  // Runs what was added, and forgets it.
  void run();

  // Memory that stays until the end of run(), at a multiple of 64.
  void* memory(size_t bytes);

  // What an earlier launch of this batch made of the same values, where it noted it: null, or the memory.
  struct Made {
    const void* from;
    uint64_t rows;
    uint32_t columns, group, classes, planes, copies;
    bool operator==(const Made&) const = default;
  };
  void* find(const Made& what) const;
  void note(const Made& what, void* memory);

 private:
  struct Work {
    uint64_t count;
    double nanoseconds;
    const void* fn;
    void (*call)(const void* fn, uint64_t begin, uint64_t end);
  };
  struct Noted {
    Made what;
    void* memory;
  };

  void add(const Work& work);
  void clear();

  ThreadPool& pool_;
  const Precision precision_;
  std::vector<Work> work_;
  std::vector<Noted> made_;
};

}  // namespace pyturbo::cpu
