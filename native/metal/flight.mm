#include "metal/flight.h"

namespace pyturbo::metal {

uint64_t Flight::next() {
  const std::lock_guard lock(mutex_);
  return done_ + at_work_.size() + 1;
}

uint64_t Flight::commit(id<MTLCommandBuffer> commands) {
  const std::lock_guard lock(mutex_);
  [commands commit];
  at_work_.push_back(Ref<CommandsObject>::retain(commands));
  return done_ + at_work_.size();
}

void Flight::wait(uint64_t number) {
  const Pool pool;
  for (;;) {
    Ref<CommandsObject> commands;
    {
      const std::lock_guard lock(mutex_);
      if (done_ >= number || at_work_.empty()) return;
      commands = at_work_.front();
    }
    [commands.get() waitUntilCompleted];
    const std::lock_guard lock(mutex_);
    if (at_work_.empty() || at_work_.front().get() != commands.get()) continue;  // another thread was faster
    if ([commands.get() status] == MTLCommandBufferStatusError && failure_.empty())
      failure_ = text([commands.get() label]) + ": " + text([commands.get() error]);
    at_work_.pop_front();
    ++done_;
  }
}

void Flight::wait_for_room(uint64_t count) {
  const uint64_t next = this->next();
  if (next > count + 1) wait(next - 1 - count);
}

std::string Flight::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace pyturbo::metal
