// Who touched each byte of writable memory last, and which accesses a barrier orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pyturbo/kernel.h"

namespace pyturbo::checker {

// One access: when, by whom, where. All zero: none.
struct Mark {
  uint32_t epoch = 0;
  uint32_t thread : 10 = 0;
  uint32_t atomic : 1 = 0;
  uint32_t order : 21 = 0;  // of its simdgroup in the epoch
  uint32_t statement = 0;
  bool operator==(const Mark&) const = default;
};

// The history of one byte. Two readers suffice: a later writer is not the same thread as both.
struct Cell {
  Mark writer;
  Mark reader[2];
};

// Time in one kind of memory (device or threadgroup), as the running group's barriers cut it.
// Owner: a Checker; one OS thread, no lock.
class Clock {
 public:
  // forget: what earlier groups did is no longer there (threadgroup memory).
  explicit Clock(bool forget) : forget_(forget) {}

  void begin_group();
  void threadgroup_barrier();
  void simdgroup_barrier(uint32_t simdgroup);

  Mark now(uint32_t thread, bool atomic, uint32_t statement) const;
  bool present(Mark m) const { return m.epoch >= (forget_ ? group_start_ : 1); }
  // Whether m surely comes before what `thread` does now.
  bool ordered(Mark m, uint32_t thread) const;
  bool this_group(Mark m) const { return m.epoch >= group_start_; }
  uint64_t group_of(Mark m) const;  // how many groups began before the one of m

 private:
  bool forget_;
  uint32_t epoch_ = 0;
  uint32_t group_start_ = 0;
  uint32_t order_[kMaxThreads / kSimdWidth] = {};
  std::vector<uint32_t> starts_;
};

struct Conflict {
  enum Kind { none, race, unwritten } kind = none;
  size_t byte = 0;  // from the first byte of the access
  Mark other;
  bool other_wrote = false;
};

// Checks the access `now` to cells[0, size) and enters it. must_be_written: reading an unwritten byte is a
// conflict.
Conflict record_access(Cell* cells, size_t size, uint32_t how, const Clock& clock, Mark now,
                       bool must_be_written);

}  // namespace pyturbo::checker
