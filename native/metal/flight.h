// Command buffers that were committed and may still be at work.
#pragma once

#import <Metal/Metal.h>

#include <deque>
#include <mutex>
#include <string>

#include "metal/object.h"

namespace pyturbo::metal {

// Owner: the device and its memory. Any thread.
class Flight {
 public:
  void add(id<MTLCommandBuffer> commands);

  // Waits until at most `left` command buffers are at work. Throws nothing.
  void finish(size_t left);

  // What the first command buffer that failed said, with its label; it stays. Empty: none has.
  std::string failure();

 private:
  std::mutex mutex_;
  std::deque<Ref<CommandsObject>> at_work_;
  std::string failure_;
};

}  // namespace pyturbo::metal
