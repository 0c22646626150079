#include "metal/flight.h"

namespace pyturbo::metal {

void Flight::add(id<MTLCommandBuffer> commands) {
  const std::lock_guard lock(mutex_);
  at_work_.push_back(Ref<CommandsObject>::retain(commands));
}

void Flight::finish(size_t left) {
  const Pool pool;
  const std::lock_guard lock(mutex_);
  while (at_work_.size() > left) {
    const Ref<CommandsObject> commands = std::move(at_work_.front());
    at_work_.pop_front();
    [commands.get() waitUntilCompleted];
    if ([commands.get() status] == MTLCommandBufferStatusError && failure_.empty())
      failure_ = text([commands.get() label]) + ": " + text([commands.get() error]);
  }
}

std::string Flight::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace pyturbo::metal
