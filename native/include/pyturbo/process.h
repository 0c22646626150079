// What happens to the whole process: forks, and its end.
#pragma once

#include <cstdint>
#include <mutex>

namespace pyturbo {

// How many forks lie between the process that loaded the library and this one. What was made at another
// count belongs to a parent: its threads do not exist here, and its locks may stay held for ever.
uint32_t fork_count();

// Takes the mutex, which must never go away, around every fork: the child finds it open and what it guards
// whole. At most eight; none is taken while another is held.
void hold_across_forks(std::mutex& mutex);

// Called once by the thread that ends the process, before static objects go: replays stop between launches,
// and devices are closed and refuse all work.
void end_process();

// Whether the process is ending; `elsewhere`: on another thread than this one.
bool process_ends();
bool process_ends_elsewhere();

}  // namespace pyturbo
