#include "experts/slot_cache.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/pages.h"

namespace pyturbo::experts {

SlotCache::SlotCache(const ExpertSlab& slab, uint64_t stride, uint32_t staging, std::vector<LayerRows>& rows,
                     const std::vector<Scores>& scores)
    : slab_(slab),
      stride_(stride),
      rows_(rows),
      scores_(scores),
      contents_(slab.slots),
      filled_(slab.slots),
      candidates_(rows.size()) {
  divide(slab.slots, staging);
}

void SlotCache::divide(uint32_t slots, uint32_t staging) {
  slots_ = slots;
  cached_ = slots - staging;
  for (uint32_t slot = cached_; slot < slab_.slots; ++slot) {
    Content& content = contents_[slot];
    if (content.layer < 0) continue;
    candidates_[size_t(content.layer)].erase({content.key, int32_t(slot)});
    rows_[size_t(content.layer)].set_slot(content.expert, kNone);
    content = {};
  }
  empty_.clear();
  for (uint32_t slot = 0; slot < cached_; ++slot)
    if (contents_[slot].layer < 0) empty_.insert(empty_.end(), int32_t(slot));
  staging_.clear();
  for (uint32_t slot = slots_; slot-- > cached_;) staging_.push_back(int32_t(slot));
}

void SlotCache::resize(uint32_t slots, uint32_t staging) {
  slots = std::clamp<uint32_t>(slots, 1, slab_.slots);
  divide(slots, std::min(staging, slots - 1));
  if (!give_back_pages(memory(0, int32_t(slots_)), (slab_.slots - slots_) * stride_)) return;
  for (uint32_t slot = slots_; slot < slab_.slots; ++slot) {
    filled_count_ -= filled_[slot];
    filled_[slot] = false;
  }
}

bool SlotCache::is_sized(uint32_t slots, uint32_t staging) const {
  slots = std::clamp<uint32_t>(slots, 1, slab_.slots);
  return slots == slots_ && slots - std::min(staging, slots - 1) == cached_ &&
         std::find(filled_.begin() + slots_, filled_.end(), true) == filled_.end();
}

void SlotCache::set_filled(int32_t slot) {
  if (filled_[size_t(slot)]) return;
  reuse_pages(memory(0, slot), stride_);
  filled_[size_t(slot)] = true;
  ++filled_count_;
}

// Returns the slot that is given away next; kNone if all are held.
SlotCache::Victim SlotCache::victim() const {
  if (!empty_.empty()) return {-std::numeric_limits<double>::infinity(), *empty_.begin()};
  Victim lowest{std::numeric_limits<double>::infinity(), kNone};
  for (size_t layer = 0; layer < candidates_.size(); ++layer) {
    if (candidates_[layer].empty()) continue;
    const int32_t slot = candidates_[layer].begin()->slot;
    const double value = scores_[layer].value(contents_[size_t(slot)].expert);
    if (lowest.slot == kNone || std::tie(value, slot) < std::tie(lowest.value, lowest.slot))
      lowest = {value, slot};
  }
  return lowest;
}

void SlotCache::withdraw(int32_t slot) {
  if (uint32_t(slot) >= cached_) return;
  const Content& content = contents_[size_t(slot)];
  if (content.layer < 0)
    empty_.erase(slot);
  else
    candidates_[size_t(content.layer)].erase({content.key, slot});
}

void SlotCache::used(int32_t slot) {
  if (uint32_t(slot) >= cached_) return;
  withdraw(slot);
  release(slot);
}

void SlotCache::replace(int32_t slot, uint32_t layer, uint32_t expert) {
  withdraw(slot);
  Content& content = contents_[size_t(slot)];
  if (content.layer >= 0) rows_[size_t(content.layer)].set_slot(content.expert, kNone);
  content = {int32_t(layer), expert};
  set_filled(slot);
}

int32_t SlotCache::take_ahead(uint32_t layer, uint32_t expert, Hope hope) {
  const Victim lowest = victim();
  const bool better = lowest.slot != kNone && scores_[layer].value_if_used(expert) >= lowest.value;
  const size_t spared = hope == Hope::surely ? 0 : (slots_ - cached_) / 2;
  if (!better && staging_.size() > spared) {
    const int32_t slot = staging_.back();
    staging_.pop_back();
    contents_[size_t(slot)] = {int32_t(layer), expert};
    set_filled(slot);
    return slot;
  }
  if (!better && hope == Hope::perhaps) return kNone;
  if (lowest.slot != kNone) replace(lowest.slot, layer, expert);
  return lowest.slot;
}

int32_t SlotCache::take(uint32_t layer, uint32_t expert) {
  const bool staged = cached_ < slots_;
  const Victim lowest = victim();
  if (lowest.slot != kNone && (!staged || scores_[layer].value(expert) >= lowest.value)) {
    replace(lowest.slot, layer, expert);
    return lowest.slot;
  }
  if (staging_.empty()) return kNone;
  const int32_t slot = staging_.back();
  staging_.pop_back();
  set_filled(slot);
  return slot;
}

void SlotCache::drop(int32_t slot) {
  contents_[size_t(slot)] = {};
  release(slot);
}

void SlotCache::release(int32_t slot) {
  Content& content = contents_[size_t(slot)];
  if (uint32_t(slot) >= cached_) {
    if (content.layer >= 0) rows_[size_t(content.layer)].set_slot(content.expert, kNone);
    content = {};
    staging_.push_back(slot);
    return;
  }
  if (content.layer < 0) {
    empty_.insert(slot);
    return;
  }
  content.key = scores_[size_t(content.layer)].key(content.expert);
  candidates_[size_t(content.layer)].insert({content.key, slot});
}

}  // namespace pyturbo::experts
