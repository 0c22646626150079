// The last accesses to each byte of writable memory, and their order by barriers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pyturbo/kernel.h"

namespace pyturbo::checker {

// One access: its time, thread and statement. All zero: no access.
struct Mark {
  uint32_t epoch = 0;
  uint32_t thread : 10 = 0;
  uint32_t atomic : 1 = 0;
  uint32_t order : 21 = 0;  // simdgroup barriers of its simdgroup in the epoch
  uint32_t statement = 0;
  bool operator==(const Mark&) const = default;
};

// The history of one byte. Two readers suffice: a later writer differs from at least one of them.
struct Cell {
  Mark writer;
  Mark reader[2];
};

// Time in one kind of memory (device or threadgroup), divided by the running group's barriers.
// Owner: a Checker; one OS thread, no lock.
class Clock {
 public:
  // forget: accesses of earlier groups do not count (threadgroup memory).
  explicit Clock(bool forget) : forget_(forget) {}

  void begin_group();
  void threadgroup_barrier();
  void simdgroup_barrier(uint32_t simdgroup);

  Mark now(uint32_t thread, bool atomic, uint32_t statement) const;
  bool present(Mark m) const { return m.epoch >= (forget_ ? group_start_ : 1); }
  // Returns whether barriers order m before the current access of `thread`.
  bool ordered(Mark m, uint32_t thread) const;
  bool this_group(Mark m) const { return m.epoch >= group_start_; }
  uint64_t group_of(Mark m) const;  // number of groups that began before that of m

 private:
  bool forget_;
  uint32_t epoch_ = 0;
  uint32_t group_start_ = 0;
  uint32_t order_[kMaxThreads / kSimdWidth] = {};
  std::vector<uint32_t> starts_;
};

struct Conflict {
  enum Kind { none, race, unwritten } kind = none;
  size_t byte = 0;  // offset in the access
  Mark other;
  bool other_wrote = false;
};

// Checks the access `now` to cells[0, size) and records it. must_be_written: reading an unwritten byte is a
// conflict.
Conflict record_access(Cell* cells, size_t size, uint32_t how, const Clock& clock, Mark now,
                       bool must_be_written);

}  // namespace pyturbo::checker
