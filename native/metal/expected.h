// Command buffers of replays that are expected: encoded, but not committed.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "metal/object.h"

namespace pyturbo::metal {

// They retain nothing of what they use, so all are dropped before any of it is released. Owner: the device,
// its memory and the plans of programs. Any thread; one lock. Callers have an autorelease pool.
class Expected {
 public:
  // Most command buffers at a time. While 64 of a queue have not finished, Metal makes no other: these never
  // do, as long as they are here.
  static constexpr size_t kMost = 16;

  using Replay = std::vector<Ref<CommandsObject>>;  // in the order in which they are committed

  // Keeps a replay of 1 to kMost command buffers; the oldest ones are dropped for it. Returns its number,
  // from 1 on.
  uint64_t keep(Replay replay);

  bool has(uint64_t number);

  // Removes and returns a replay; returns an empty one if it is not there.
  Replay take(uint64_t number);

  void drop_all();

 private:
  struct Kept {
    uint64_t number;
    Replay replay;
  };
  std::mutex mutex_;
  std::deque<Kept> kept_;  // by number
  uint64_t last_ = 0;
};

}  // namespace pyturbo::metal
