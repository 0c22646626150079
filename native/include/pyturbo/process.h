// Events of the whole process: forks, and its end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace pyturbo {

// Returns the number of forks between the process that loaded the library and this one. Objects made at
// another count belong to a parent: their threads do not exist here, and their locks may be held for ever.
uint32_t fork_count();

// Locks the mutex around every fork, so that the child finds it unlocked and its data consistent. The mutex
// must never be destroyed. At most eight; no code may lock one of them while it holds another.
void hold_across_forks(std::mutex& mutex);

// An object with threads or work of its own, which must end before the process does.
class ClosedAtEnd {
 public:
  virtual ~ClosedAtEnd() = default;
  virtual void close() = 0;
};

// Has end_process() close the object if it still exists then; the last one added is closed first.
void close_at_end(const std::shared_ptr<ClosedAtEnd>& object);

// Called once by the thread that ends the process, before static objects are destroyed. Replays stop between
// launches; devices and stores are closed and refuse all work.
void end_process();

// Return whether the process is ending, and whether another thread than this one is ending it.
bool process_ends();
bool process_ends_elsewhere();

}  // namespace pyturbo
