// The slots of a slab, and which expert has to leave for another.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

#include "experts/layer_rows.h"
#include "experts/places.h"
#include "experts/scores.h"

namespace pyturbo::experts {

// The first slots in use are a cache: an expert that is taken in replaces the one of the lowest value
// (Scores) that is not held; equal values go by slot. The last `staging` of them take experts whose value is
// below all of these, and forget them when their pass is done; an expert waits for a staging slot rather than
// replace a better one. Half of them may be used for what will perhaps be needed; what surely will be may
// replace better ones too, in an eighth of all slots.
class SlotCache : public Places {
 public:
  SlotCache(const ExpertSlab& slab, uint64_t stride, uint32_t staging, std::vector<LayerRows>& rows,
            const std::vector<Scores>& scores);

  void used(int32_t slot) override;
  void hold(int32_t slot) override { withdraw(slot); }
  int32_t take(uint32_t layer, uint32_t expert) override;
  int32_t take_ahead(uint32_t layer, uint32_t expert, Hope hope) override;
  uint32_t most_ahead() const override { return slots_ / 8; }
  uint8_t* memory(uint32_t, int32_t slot) const override { return slab_.data + uint64_t(slot) * stride_; }
  bool keep(int32_t slot) override { return uint32_t(slot) < cached_; }
  void drop(int32_t slot) override;
  void release(int32_t slot) override;
  void resize(uint32_t slots, uint32_t staging) override;
  bool is_sized(uint32_t slots, uint32_t staging) const override;
  uint32_t slots() const override { return slots_; }
  uint32_t filled() const override { return filled_count_; }

 private:
  struct Candidate {
    double key;  // Scores::key of its expert
    int32_t slot;
    auto operator<=>(const Candidate&) const = default;
  };
  struct Content {
    int32_t layer = -1;  // -1: empty
    uint32_t expert = 0;
    double key = 0;  // in candidates_
  };
  struct Victim {
    double value;  // -inf: an empty slot
    int32_t slot;
  };

  Victim victim() const;
  void replace(int32_t slot, uint32_t layer, uint32_t expert);
  void withdraw(int32_t slot);
  void set_filled(int32_t slot);
  // No slot may be held.
  void divide(uint32_t slots, uint32_t staging);

  const ExpertSlab slab_;
  const uint64_t stride_;
  uint32_t slots_ = 0;   // in use
  uint32_t cached_ = 0;  // of these, the cache; the others are for staging
  std::vector<LayerRows>& rows_;
  const std::vector<Scores>& scores_;
  std::vector<Content> contents_;
  std::vector<bool> filled_;  // slots that take memory
  uint32_t filled_count_ = 0;
  // Slots that are not held: by layer, so that time does not change their order; empty ones; those for
  // staging.
  std::vector<std::set<Candidate>> candidates_;
  std::set<int32_t> empty_;
  std::vector<int32_t> staging_;
};

}  // namespace pyturbo::experts
