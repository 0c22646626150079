#include "metal/expected.h"

#include <algorithm>
#include <utility>

namespace pyturbo::metal {

uint64_t Expected::keep(Replay replay) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({++last_, std::move(replay)});
  size_t count = 0;
  for (const Kept& kept : kept_) count += kept.replay.size();
  for (; count > kMost; kept_.pop_front()) count -= kept_.front().replay.size();
  return last_;
}

bool Expected::has(uint64_t number) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(kept_, [&](const Kept& kept) { return kept.number == number; });
}

Expected::Replay Expected::take(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto kept = std::ranges::find(kept_, number, &Kept::number);
  if (kept == kept_.end()) return {};
  Replay replay = std::move(kept->replay);
  kept_.erase(kept);
  return replay;
}

void Expected::drop_all() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
}

}  // namespace pyturbo::metal
