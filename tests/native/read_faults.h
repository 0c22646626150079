// Reads of record files that fail, and the calls of a host loop, for tests in Python.
#pragma once

#include <cstdint>
#include <string>

#include "pyturbo/host_loop.h"

// From now on the reads of record files numbered `first` to `first` + `count` - 1, counted from 0, go wrong:
//   "error"   the read fails with errno `value`
//   "short"   it reads at most `value` bytes
//   "end"     it reads nothing, as at the end of a file
//   "slow"    it waits `value` milliseconds first
//   "direct"  it fails with EINVAL if it goes past the page cache
//   "open"    no read goes wrong, but files are not opened for reading past the page cache
// Throws std::invalid_argument for another kind.
void set_read_faults(const std::string& kind, int64_t value, uint64_t first, uint64_t count);
// Back to the plain system calls.
void clear_read_faults();
// Number of reads since the faults were set.
uint64_t faulty_reads();

inline void loop_begin(pyturbo::HostLoop* loop) { loop->begin(); }
inline bool loop_next(pyturbo::HostLoop* loop) { return loop->next(); }
inline void loop_finish(pyturbo::HostLoop* loop) { loop->finish(); }
inline void loop_cancel(pyturbo::HostLoop* loop) { loop->cancel(); }
