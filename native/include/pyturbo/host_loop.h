// Work of the host in the middle of a replay.
#pragma once

#include <atomic>
#include <cstdint>

namespace pyturbo {

// Something that one replay has at a time. Any thread.
class Claim {
 public:
  // Returns whether the replay has it now: nobody had it, or the replay itself.
  bool take(const void* replay) {
    const void* holder = nullptr;
    return holder_.compare_exchange_strong(holder, replay) || holder == replay;
  }
  // Does nothing unless the replay has it.
  void release(const void* replay) { holder_.compare_exchange_strong(replay, nullptr); }

 private:
  std::atomic<const void*> holder_{nullptr};
};

// Brings what launches found to be missing, such as the weights of an expert that are still on disk, and has
// the launches that need it run again as *passes*. See Program::ask.
// Owner: shared by the Python HostLoop and every program that asks it. Its methods are called by the thread
// of the replay, one at a time.
class HostLoop {
 public:
  HostLoop() = default;
  virtual ~HostLoop() = default;
  HostLoop(const HostLoop&) = delete;
  HostLoop& operator=(const HostLoop&) = delete;

  // Taken by a replay before its first launch, and released when its loops have ended; a replay that does not
  // get it calls no other method. Loops that share anything share their claim.
  virtual Claim& claim() { return claim_; }

  // Written by launches before the ask. Zero: nothing is missing, and the host is not needed. The address
  // never changes; devices run fastest when it lies in memory that they allocated.
  virtual const uint32_t* missing() const = 0;

  // Returns whether begin() is called at an ask where the host looks for itself. A loop that has other work
  // to start then may ask for it although nothing is missing; next() returns false in that case.
  virtual bool needed() const { return *missing() != 0; }

  // Starts bringing what is missing, and returns without waiting for it. Leaves *missing() as it is. The
  // launches before the ask are done; those of the first pass may be running, or are still to come.
  virtual void begin() = 0;

  // Waits until another pass has something to do, prepares it, and returns true; false: there is none left.
  // All launches so far are done. A loop that sets *missing() to zero here states that this pass is the last
  // one: then the replay continues after it without another call.
  virtual bool next() = 0;

  // Called after a whole replay, for every loop of it in order, whether it had to begin or not.
  virtual void finish() = 0;

  // Called instead of finish() for every loop of a replay that failed, whether it had begun or not. Nothing
  // of the loop may be under way on return; what was started ahead of another one may. What it throws is
  // dropped: the replay reports its first failure.
  virtual void cancel() = 0;

 private:
  Claim claim_;
};

}  // namespace pyturbo
