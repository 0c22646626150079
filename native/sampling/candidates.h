// The tokens that may still be drawn. Filters keep the most likely ones, by radix selection instead of
// sorting.
#pragma once

#include <cstdint>
#include <vector>

namespace pyturbo {

// Ranks: the larger value first, equal values by token. The weight of a token is exp((value - top) * scale),
// with `top` the largest value. A token of value -inf is forbidden: no filter keeps it and no draw gives it.
// Memory is reused from one start to the next.
class Candidates {
 public:
  // All tokens of a vocabulary. The logits stay in use until the next start; the largest is `top` and finite.
  void start(const float* logits, uint32_t vocab, float top);

  // The `count` >= 1 first, or all that are allowed.
  void keep_count(uint32_t count);

  // As few of the first as weigh at least `share` of the whole, 0 < share <= 1. Scale is 1. Returns the whole
  // weight.
  double keep_share(double share);

  // Those that weigh at least `weight` <= 1. Scale is 1.
  void keep_weight(double weight);

  // The first at which the sum of weights, in order of rank, is at least `share` of the whole, 0 < share
  // <= 1.
  uint32_t draw(float scale, double share);

  // After a keep: what is left, by ascending token.
  uint32_t count() const { return count_; }
  uint32_t token(uint32_t i) const { return tokens_[i]; }

 private:
  struct Bucket {
    uint32_t number;
    double before;  // weight of all buckets of higher rank
  };

  const float* current() const { return listed_ ? values_.data() : logits_; }
  template <typename Kept>
  void keep_if(Kept kept);
  double weigh_current(float scale);
  void keep_enough(double target);
  Bucket find(double before, double target) const;
  uint32_t reach(double target);
  void keep_until(uint32_t last);

  const float* logits_ = nullptr;
  float top_ = 0;
  uint32_t count_ = 0;
  bool listed_ = false;  // whether the candidates are in the three lists below, or still all of the logits
  std::vector<float> values_;
  std::vector<uint32_t> tokens_;
  std::vector<float> weights_;
  std::vector<double> histogram_;
  std::vector<uint32_t> positions_;  // scratch: some of the candidates
  std::vector<float> peaks_;         // scratch: of blocks of logits
};

}  // namespace pyturbo
