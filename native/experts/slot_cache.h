// The slots of a slab, and which expert has to leave for another.
#pragma once

#include <cstdint>
#include <vector>

#include "experts/layer_rows.h"
#include "experts/places.h"
#include "experts/scores.h"

namespace pyturbo::experts {

// The first slots in use are a cache: an expert that is taken in replaces the one of the lowest value
// (Scores) that is not held; equal values go by slot. The last `staging` of them take experts whose value is
// below all of these, and forget them when their pass is done; an expert waits for a staging slot rather than
// replace a better one.
class SlotCache : public Places {
 public:
  SlotCache(const ExpertSlab& slab, uint64_t stride, uint32_t staging, std::vector<LayerRows>& rows,
            const std::vector<Scores>& scores);

  void begin() override;
  void hold(int32_t slot) override { held_[size_t(slot)] = true; }
  int32_t take(uint32_t layer, uint32_t expert) override;
  uint8_t* memory(uint32_t, int32_t slot) const override { return slab_.data + uint64_t(slot) * stride_; }
  bool keep(int32_t slot) override { return uint32_t(slot) < cached_; }
  void drop(int32_t slot) override;
  void release(int32_t slot) override;
  void resize(uint32_t slots) override;
  uint32_t slots() const override { return slots_; }

 private:
  struct Content {
    int32_t layer = -1;  // -1: empty
    uint32_t expert = 0;
  };
  struct Candidate {
    double value;
    int32_t slot;
  };
  static bool later(const Candidate& a, const Candidate& b);

  void divide(uint32_t slots, uint32_t staging);
  double value(int32_t slot) const;
  void offer(int32_t slot);

  const ExpertSlab slab_;
  const uint64_t stride_;
  const uint32_t most_staging_;
  uint32_t slots_ = 0;   // in use
  uint32_t cached_ = 0;  // of these, the cache; the others are for staging
  std::vector<LayerRows>& rows_;
  const std::vector<Scores>& scores_;
  std::vector<Content> contents_;
  std::vector<bool> held_;             // by a read or a pass of the loop under way
  std::vector<Candidate> candidates_;  // a heap of the cache's slots that are not held, the lowest first
  bool current_ = false;               // candidates_ belongs to the loop under way
  std::vector<int32_t> staging_;       // free
};

}  // namespace pyturbo::experts
