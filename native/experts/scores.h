// How much the experts of a layer are used, which decides what stays in memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace pyturbo::experts {

// The score of an expert is the sum of its uses, each halved for every `half_life` tokens of the layer since
// then: close to least recently used for a short half life, to least frequently used for a long one. Time is
// that of the layer, so that layers which a replay has not reached yet do not look unused. Owner: a store,
// under its lock.
class Scores {
 public:
  Scores(uint32_t experts, double half_life, uint32_t top_k);

  // Adds the uses of the next tokens; their number is that of all choices / top_k.
  void add(const std::vector<uint32_t>& uses);

  // Returns log2(score) at the layer's current time; -inf for an expert that was never used.
  double value(uint32_t expert) const {
    const Score& score = scores_[expert];
    return score.log2 - (now_ - score.time) / half_life_;
  }

  // Returns what value() would be after one more use.
  double value_if_used(uint32_t expert) const { return std::log2(std::exp2(value(expert)) + 1); }

  // Returns a number that has the order of value() among the experts of the layer, and changes only with
  // uses.
  double key(uint32_t expert) const {
    const Score& score = scores_[expert];
    return score.log2 + score.time / half_life_;
  }

 private:
  struct Score {
    double log2;  // of the score at `time`, when it was last used
    double time;
  };

  const double half_life_;
  const uint32_t top_k_;
  double now_ = 0;  // tokens so far
  std::vector<Score> scores_;
};

}  // namespace pyturbo::experts
