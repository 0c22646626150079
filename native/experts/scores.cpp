#include "experts/scores.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace pyturbo::experts {

Scores::Scores(uint32_t experts, double half_life, uint32_t top_k)
    : half_life_(half_life), top_k_(top_k), scores_(experts, {-std::numeric_limits<double>::infinity(), 0}) {}

void Scores::add(const std::vector<uint32_t>& uses) {
  const uint64_t choices = std::accumulate(uses.begin(), uses.end(), uint64_t(0));
  now_ += double(choices) / top_k_;
  for (uint32_t e = 0; e < uses.size(); ++e)
    if (uses[e]) scores_[e] = {std::log2(std::exp2(value(e)) + uses[e]), now_};
}

}  // namespace pyturbo::experts
