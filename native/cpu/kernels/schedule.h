// How a launch is cut into items for the thread pool.
#pragma once

#include <cstdint>

#include "cpu/pool.h"

namespace pyturbo::cpu::PYTURBO_ISA {

constexpr double kWorthSharing = 6000;  // nanoseconds: waking a thread that spins costs about one of them
constexpr uint64_t kSharesPerThread = 4;

// Calls fn(begin, end) so that every item below `count` is in one range. An item takes about `nanoseconds` on
// one thread; a launch that is soon over stays on the calling one.
template <typename Fn>
static void for_ranges(ThreadPool& pool, uint64_t count, double nanoseconds, const Fn& fn) {
  const double total = double(count) * nanoseconds;
  const uint64_t worth = uint64_t(total / (kWorthSharing / 2));
  uint64_t shares = pool.threads() * kSharesPerThread;
  if (shares > worth) shares = worth;
  if (shares > count) shares = count;
  if (pool.threads() == 1 || shares < 2) {
    if (count > 0) fn(uint64_t(0), count);
    return;
  }
  pool.parallel_for(shares,
                    [&](uint64_t share) { fn(count * share / shares, count * (share + 1) / shares); });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
