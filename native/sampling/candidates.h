// The tokens that may still be drawn. Filters keep the most likely ones by radix selection, without sorting.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyturbo/sampler.h"

namespace pyturbo {

// Rank: the larger value first, equal values by token. The weight of a token is exp((value - top) * scale),
// where `top` is the largest value. A token of value -inf is forbidden: no filter keeps it and no draw
// returns it. Memory is reused from one start to the next. Owner: a Sampler, under its lock, or one thread.
class Candidates {
 public:
  // Starts with all tokens of a vocabulary. The logits must stay valid until the next start; `top` is the
  // largest, and finite.
  void start(const float* logits, uint32_t vocab, float top);

  // Starts with the tokens that a mask allows, but forbidden ones. Returns whether there are any.
  bool start(const float* logits, uint32_t vocab, TokenMask allowed);

  // Starts with one token or more, ascending and none of them forbidden, as if a filter had kept them.
  void start(std::span<const TokenLogit> kept);

  // Keeps those whose value is at most `count` > 0 standard deviations of all values below the largest.
  void keep_sigma(double count);

  // Keeps the first `count` >= 1 by rank, or all allowed ones if there are fewer.
  void keep_count(uint32_t count);

  // Keeps the fewest that weigh at least `share` of the total, 0 < share <= 1, of those whose information is
  // nearest to the entropy; equally near ones by token. The scale is 1.
  void keep_typical(double share);

  // Keeps the fewest first ones that weigh at least `share` of the total, 0 < share <= 1. The scale is 1.
  // Returns the total weight.
  double keep_share(double share);

  // Keeps those that weigh at least `weight` <= 1. The scale is 1.
  void keep_weight(double weight);

  // Drops all but the last by rank of those that weigh at least `share` of the total. The scale is 1.
  void drop_likeliest(double share);

  // Returns the first token by rank, after a start with a mask.
  uint32_t first() const;

  // Returns the token at which the sum of weights, in order of rank, reaches `share` of the total,
  // 0 < share <= 1.
  uint32_t draw(float scale, double share);

  // The remaining candidates after a filter, by ascending token.
  uint32_t count() const { return count_; }
  uint32_t token(uint32_t i) const { return tokens_[i]; }

 private:
  struct Bucket {
    uint32_t number;
    double before;  // weight of all buckets of higher rank
  };

  void reserve(uint32_t count);
  const float* current() const { return listed_ ? values_.data() : logits_; }
  template <typename Kept>
  void keep_if(Kept kept);
  double weigh_current(float scale);
  void keep_heavier(float least);
  void keep_enough(double target);
  Bucket find(double before, double target) const;
  uint32_t reach(const std::vector<float>& ranks, double target);
  void keep_until(const std::vector<float>& ranks, uint32_t last);

  const float* logits_ = nullptr;
  float top_ = 0;
  uint32_t count_ = 0;
  bool listed_ = false;  // whether the three lists below hold the candidates; else all logits are candidates
  std::vector<float> values_;
  std::vector<uint32_t> tokens_;
  std::vector<float> weights_;
  std::vector<float> nearness_;  // to the entropy: the larger, the nearer
  std::vector<double> histogram_;
  std::vector<uint32_t> positions_;  // scratch: indices of candidates
  std::vector<float> peaks_;         // scratch: the largest logit of each block
};

}  // namespace pyturbo
