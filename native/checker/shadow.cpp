#include "checker/shadow.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "checker/access.h"

namespace pyturbo::checker {

void Clock::begin_group() {
  threadgroup_barrier();
  group_start_ = epoch_;
  starts_.push_back(epoch_);
}

void Clock::threadgroup_barrier() {
  ++epoch_;
  std::fill(std::begin(order_), std::end(order_), 0);
}

void Clock::simdgroup_barrier(uint32_t simdgroup) {
  constexpr uint32_t kLast = (1u << 21) - 1;
  if (order_[simdgroup] < kLast) ++order_[simdgroup];
}

Mark Clock::now(uint32_t thread, bool atomic, uint32_t statement) const {
  Mark m;
  m.epoch = epoch_;
  m.thread = thread;
  m.atomic = atomic;
  m.order = order_[thread / kSimdWidth];
  m.statement = statement;
  return m;
}

bool Clock::ordered(Mark m, uint32_t thread) const {
  if (!present(m)) return true;
  if (m.epoch < group_start_) return false;
  if (m.epoch < epoch_ || m.thread == thread) return true;
  return m.thread / kSimdWidth == thread / kSimdWidth && m.order < order_[thread / kSimdWidth];
}

uint64_t Clock::group_of(Mark m) const {
  return uint64_t(std::upper_bound(starts_.begin(), starts_.end(), m.epoch) - starts_.begin()) - 1;
}

namespace {

// Keeps two readers that no barrier has ordered yet: plain reads rather than atomic ones, and of different
// simdgroups if possible.
void enter_reader(Cell& cell, Mark now, const Clock& clock) {
  for (Mark& r : cell.reader) {
    const bool own = clock.this_group(r) && r.thread == now.thread;
    if (own ? !(now.atomic && !r.atomic && r.epoch == now.epoch) : clock.ordered(r, now.thread)) {
      r = now;
      return;
    }
    if (own) return;
  }
  for (Mark& r : cell.reader) {
    if (r.atomic && !now.atomic) {
      r = now;
      return;
    }
  }
  const Mark &a = cell.reader[0], &b = cell.reader[1];
  if (clock.this_group(a) && clock.this_group(b) && a.thread / kSimdWidth == b.thread / kSimdWidth &&
      now.thread / kSimdWidth != a.thread / kSimdWidth && !(now.atomic && !b.atomic)) {
    cell.reader[1] = now;
  }
}

void enter_writer(Cell& cell, Mark now) {
  const Mark w = cell.writer;
  const bool hides_plain = now.atomic && !w.atomic && w.epoch == now.epoch && w.thread == now.thread;
  if (!hides_plain) cell.writer = now;
  if (!now.atomic) cell.reader[0] = cell.reader[1] = Mark{};
}

// Checks and records an access to one byte.
Conflict record_byte(Cell& cell, uint32_t how, Mark now, const Clock& clock, bool must_be_written) {
  const bool atomic = how & kAtomic;
  if (how & kRead && must_be_written && !clock.present(cell.writer)) {
    return {Conflict::unwritten, 0, {}, false};
  }
  if (!clock.ordered(cell.writer, now.thread) && !(atomic && cell.writer.atomic)) {
    return {Conflict::race, 0, cell.writer, true};
  }
  if (!(how & kWrite)) {
    enter_reader(cell, now, clock);
    return {};
  }
  for (const Mark& r : cell.reader) {
    if (!clock.ordered(r, now.thread) && !(atomic && r.atomic)) return {Conflict::race, 0, r, false};
  }
  enter_writer(cell, now);
  return {};
}

}  // namespace

Conflict record_access(Cell* cells, size_t size, uint32_t how, const Clock& clock, Mark now,
                       bool must_be_written) {
  // The bytes of one access usually have the same history, and then the same result.
  Cell before = cells[0];
  for (size_t i = 0; i < size; ++i) {
    if (i > 0 && std::memcmp(&cells[i], &before, sizeof(Cell)) == 0) {
      cells[i] = cells[i - 1];
      continue;
    }
    before = cells[i];
    Conflict conflict = record_byte(cells[i], how, now, clock, must_be_written);
    if (conflict.kind == Conflict::none) continue;
    conflict.byte = i;
    return conflict;
  }
  return {};
}

}  // namespace pyturbo::checker
