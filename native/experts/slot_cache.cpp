#include "experts/slot_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace pyturbo::experts {

constexpr uint32_t kStagingShare = 8;  // of fewer slots than at first, at most one in so many is for staging

SlotCache::SlotCache(const ExpertSlab& slab, uint64_t stride, uint32_t staging, std::vector<LayerRows>& rows,
                     const std::vector<Scores>& scores)
    : slab_(slab),
      stride_(stride),
      most_staging_(staging),
      rows_(rows),
      scores_(scores),
      contents_(slab.slots),
      held_(slab.slots) {
  divide(slab.slots, staging);
}

void SlotCache::divide(uint32_t slots, uint32_t staging) {
  slots_ = slots;
  cached_ = slots - staging;
  staging_.clear();
  for (uint32_t slot = slots_; slot-- > cached_;) staging_.push_back(int32_t(slot));
}

void SlotCache::resize(uint32_t slots) {
  const uint32_t before = slots_;
  divide(std::clamp<uint32_t>(slots, 1, slab_.slots), std::min(most_staging_, slots / kStagingShare));
  for (uint32_t slot = cached_; slot < slab_.slots; ++slot) {
    Content& content = contents_[slot];
    if (content.layer >= 0) rows_[size_t(content.layer)].set_slot(content.expert, kNone);
    content = {};
  }
  current_ = false;
  if (slots_ < before) ::madvise(memory(0, int32_t(slots_)), (before - slots_) * stride_, MADV_DONTNEED);
}

// Orders the heap: the candidate that leaves first is on top.
bool SlotCache::later(const Candidate& a, const Candidate& b) {
  return std::tie(a.value, a.slot) > std::tie(b.value, b.slot);
}

double SlotCache::value(int32_t slot) const {
  const Content& content = contents_[size_t(slot)];
  return content.layer < 0 ? -std::numeric_limits<double>::infinity()
                           : scores_[size_t(content.layer)].value(content.expert);
}

void SlotCache::offer(int32_t slot) {
  candidates_.push_back({value(slot), slot});
  std::push_heap(candidates_.begin(), candidates_.end(), later);
}

// Values change only between loops. The heap is made by the first take(), when hits are held.
void SlotCache::begin() { current_ = false; }

int32_t SlotCache::take(uint32_t layer, uint32_t expert) {
  if (!current_) {
    candidates_.clear();
    for (uint32_t slot = 0; slot < cached_; ++slot)
      if (!held_[slot]) candidates_.push_back({value(int32_t(slot)), int32_t(slot)});
    std::make_heap(candidates_.begin(), candidates_.end(), later);
    current_ = true;
  }
  const bool staged = cached_ < slots_;
  if (!candidates_.empty() && (!staged || scores_[layer].value(expert) >= candidates_.front().value)) {
    const int32_t slot = candidates_.front().slot;
    std::pop_heap(candidates_.begin(), candidates_.end(), later);
    candidates_.pop_back();
    Content& content = contents_[size_t(slot)];
    if (content.layer >= 0) rows_[size_t(content.layer)].set_slot(content.expert, kNone);
    content = {int32_t(layer), expert};
    held_[size_t(slot)] = true;
    return slot;
  }
  if (staging_.empty()) return kNone;
  const int32_t slot = staging_.back();
  staging_.pop_back();
  held_[size_t(slot)] = true;
  return slot;
}

void SlotCache::drop(int32_t slot) {
  if (uint32_t(slot) < cached_) contents_[size_t(slot)] = {};
  release(slot);
}

void SlotCache::release(int32_t slot) {
  held_[size_t(slot)] = false;
  if (uint32_t(slot) >= cached_)
    staging_.push_back(slot);
  else if (current_)
    offer(slot);
}

}  // namespace pyturbo::experts
