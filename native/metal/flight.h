// Command buffers that were committed and may still be running.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "metal/object.h"

namespace pyturbo::metal {

// Numbers command buffers from 1 on, in order of their commits. Owner: the device and its memory. Any thread;
// one lock, which is not held while waiting.
class Flight {
 public:
  // Returns the number of the next command buffer.
  uint64_t next();

  // Commits a command buffer and returns its number.
  uint64_t commit(id<MTLCommandBuffer> commands);

  // Waits until the command buffers up to this number have finished. Throws nothing.
  void wait(uint64_t number);
  void wait_all() { wait(next() - 1); }

  // Waits until at most `count` are running.
  void wait_for_room(uint64_t count);

  // Returns label and error of the first command buffer that failed, or an empty string.
  std::string failure();

 private:
  std::mutex mutex_;
  std::deque<Ref<CommandsObject>> at_work_;
  uint64_t done_ = 0;  // command buffers up to this number have finished
  std::string failure_;
};

}  // namespace pyturbo::metal
