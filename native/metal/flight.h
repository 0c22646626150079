// Command buffers that were committed and may still be at work.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "metal/object.h"

namespace pyturbo::metal {

// Numbers command buffers from 1 on, in the order of their commits. Owner: the device and its memory. Any
// thread.
class Flight {
 public:
  // The number that the next command buffer will have.
  uint64_t next();

  // Commits and counts.
  void commit(id<MTLCommandBuffer> commands);

  // Waits until the command buffers up to this number are done. Throws nothing.
  void wait(uint64_t number);
  void wait_all() { wait(next() - 1); }

  // Waits until at most `count` are at work.
  void wait_for_room(uint64_t count);

  // What the first command buffer that failed said, with its label; it stays. Empty: none has.
  std::string failure();

 private:
  std::mutex mutex_;  // not held while waiting
  std::deque<Ref<CommandsObject>> at_work_;
  uint64_t done_ = 0;  // the command buffers up to this one
  std::string failure_;
};

}  // namespace pyturbo::metal
