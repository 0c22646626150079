// Runs launches together that do not wait for one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cpu/pool.h"
#include "pyturbo/device_kind.h"

namespace pyturbo::cpu {

// Collects the work of launches as items and runs them over the pool: large launches are cut into pieces,
// small ones share the threads. Owner: one run of a device. Items run on any thread, all else on its own.
class Batch {
 public:
  explicit Batch(ThreadPool& pool, Precision precision = Precision::standard)
      : pool_(pool), precision_(precision) {}
  ~Batch() { clear(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  ThreadPool& pool() { return pool_; }
  Precision precision() const { return precision_; }

  // Adds `count` items that take about `nanoseconds` each. fn(begin, end) is copied; run() calls it on any
  // thread, with ranges that cover every item once.
  template <typename Fn>
  void add(uint64_t count, double nanoseconds, const Fn& fn) {
    static_assert(std::is_trivially_copyable_v<Fn>);
    void* copy = memory(sizeof(Fn));
    std::memcpy(copy, &fn, sizeof(Fn));
    add({count, nanoseconds, copy,
         [](const void* f, uint64_t begin, uint64_t end) { (*static_cast<const Fn*>(f))(begin, end); }});
  }

  // Runs all items and clears the batch.
  void run();

  // Returns memory, aligned to 64 bytes, that is valid until the end of run().
  void* memory(size_t bytes);

  // Conversions of activations that launches of this batch share. find() returns the result of one, or null.
  struct Made {
    const void* from;
    uint64_t rows;
    uint32_t columns, group, piece = 0, classes = 0, planes, copies = 0;
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
