#include "hazards.h"

#include <algorithm>

namespace soft_metal {
namespace {

bool depend(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.begin < b.end && b.begin < a.end;
}

std::string text(const Access& access) {
  return std::string(access.kernel) + (access.writes ? " writes " : " reads ") + access.argument;
}

}  // namespace

std::string Hazards::add(const std::vector<Access>& accesses) {
  if (!concurrent_) return "";
  std::string wrong;
  for (const Access& now : accesses) {
    for (const Access& earlier : open_)
      if (wrong.empty() && depend(now, earlier)) {
        const auto overlap = std::min(now.end, earlier.end) - std::max(now.begin, earlier.begin);
        wrong = "expected a barrier between " + text(earlier) + " and " + text(now) + ", which share " +
                std::to_string(overlap) + " bytes";
      }
    for (const Access& earlier : before_)
      if (watching_ && depend(now, earlier)) watching_ = false;
  }
  open_.insert(open_.end(), accesses.begin(), accesses.end());
  return wrong;
}

void Hazards::barrier() {
  if (!concurrent_) return;
  close_interval();
  before_ = std::move(open_);
  open_.clear();
  watching_ = true;
  ++barriers_;
}

void Hazards::barrier(const std::vector<const Memory*>& memories) {
  if (!concurrent_) return;
  close_interval();
  const auto ordered = std::stable_partition(open_.begin(), open_.end(), [&](const Access& access) {
    return std::find(memories.begin(), memories.end(), access.memory) == memories.end();
  });
  before_.assign(ordered, open_.end());
  open_.erase(ordered, open_.end());
  watching_ = true;
  ++barriers_;
}

void Hazards::close_interval() {
  if (watching_) ++needless_;
  watching_ = false;
}

}  // namespace soft_metal
