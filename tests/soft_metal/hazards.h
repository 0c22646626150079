// Which dispatches of one pass depend on each other without a barrier between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "resources.h"

namespace soft_metal {

// A stretch of memory that a dispatch touches.
struct Access {
  const uint8_t* begin;
  const uint8_t* end;
  bool writes;
  const Memory* memory;  // the buffer through which
  const char* kernel;
  const char* argument;
};

// Memory is compared by address, so that two buffers over the same pages are seen as one. Owner: the thread
// that executes the pass.
class Hazards {
 public:
  explicit Hazards(bool concurrent) : concurrent_(concurrent) {}

  // What is wrong when this dispatch follows those since the last barrier; empty when nothing is.
  std::string add(const std::vector<Access>& accesses);

  // Orders everything before, or what was touched through these buffers.
  void barrier();
  void barrier(const std::vector<const Memory*>& memories);

  // To be called once, after the last dispatch.
  void finish() { close_interval(); }
  uint64_t barriers() const { return barriers_; }
  uint64_t needless_barriers() const { return needless_; }

 private:
  void close_interval();

  bool concurrent_;
  std::vector<Access> open_;    // not ordered against what comes next
  std::vector<Access> before_;  // what the last barrier ordered
  bool watching_ = false;       // a barrier waits for something that needs it
  uint64_t barriers_ = 0;
  uint64_t needless_ = 0;
};

}  // namespace soft_metal
