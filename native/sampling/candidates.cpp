#include "sampling/candidates.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>

#include "sampling/softmax.h"

namespace pyturbo {
namespace {

// A key has a first digit of 12 bits and two further digits of 10 bits.
struct Digit {
  uint32_t shift, buckets;
};
constexpr Digit kDigits[] = {{20, 4096}, {10, 1024}, {0, 1024}};
// Neighbours often share a bucket. Each bucket has several parts, so that their sums do not wait for each
// other.
constexpr uint32_t kParts = 4;

// Larger than the weight of forbidden tokens, and of exponents below the range of `exponential`.
constexpr float kNegligible = 2e-38f;

// Larger floats have larger keys; both zeros have the same.
uint32_t key_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);
  return bits ^ (uint32_t(int32_t(bits) >> 31) | 0x80000000u);  // negative: all bits inverted
}

}  // namespace

void Candidates::start(const float* logits, uint32_t vocab, float top) {
  logits_ = logits;
  top_ = top;
  count_ = vocab;
  listed_ = false;
  reserve(vocab);
}

bool Candidates::start(const float* logits, uint32_t vocab, TokenMask allowed) {
  reserve(vocab);
  float* const values = values_.data();
  uint32_t* const tokens = tokens_.data();
  uint32_t count = 0;
  const auto add = [&](uint32_t token) {
    values[count] = logits[token];
    tokens[count] = token;
    count += logits[token] > -INFINITY;
  };
  for (uint32_t begin = 0; begin < vocab; begin += 32) {
    const uint32_t n = std::min(32u, vocab - begin);
    uint32_t bits = allowed[begin / 32] & (~0u >> (32 - n));
    if (bits == ~0u) {
      for (uint32_t i = 0; i < 32; ++i) add(begin + i);
    } else {
      for (; bits; bits &= bits - 1) add(begin + uint32_t(std::countr_zero(bits)));
    }
  }
  count_ = count;
  listed_ = true;
  top_ = peak_of(values, count).value;
  return count > 0;
}

void Candidates::start(std::span<const TokenLogit> kept) {
  reserve(uint32_t(kept.size()));
  top_ = kept[0].logit;
  count_ = 0;
  listed_ = true;
  for (const TokenLogit& each : kept) {
    top_ = std::max(top_, each.logit);
    values_[count_] = each.logit;
    tokens_[count_++] = each.token;
  }
}

void Candidates::reserve(uint32_t count) {
  if (positions_.size() >= count) return;  // it grows last
  values_.resize(count);
  tokens_.resize(count);
  weights_.resize(count);
  positions_.resize(count);
}

// Keeps candidates for which kept(i) is true, in order, and leaves their former indices in positions_.
template <typename Kept>
void Candidates::keep_if(Kept kept) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < count_; ++i) {  // without branches, because they would be unpredictable
    positions_[count] = i;
    count += kept(i);
  }
  const float* values = current();
  for (uint32_t n = 0; n < count; ++n) {
    const uint32_t i = positions_[n];
    values_[n] = values[i];
    tokens_[n] = listed_ ? tokens_[i] : i;
  }
  count_ = count;
  listed_ = true;
}

double Candidates::weigh_current(float scale) {
  return weigh(current(), count_, top_, scale, weights_.data());
}

// Keeps those that weigh at least `least`, with their weights.
void Candidates::keep_heavier(float least) {
  keep_if([&](uint32_t i) { return weights_[i] >= least; });
  for (uint32_t n = 0; n < count_; ++n) weights_[n] = weights_[positions_[n]];
}

// Drops light candidates while the others weigh at least `target`.
void Candidates::keep_enough(double target) {
  float least = kNegligible;
  for (float larger : {0x1p-6f, 0x1p-9f, 0x1p-12f, 0x1p-16f, 0x1p-24f, 0x1p-48f}) {
    if (least_sum_from(weights_.data(), count_, larger) < target) continue;
    least = larger;
    break;
  }
  keep_heavier(least);
}

void Candidates::keep_sigma(double count) {
  const float* values = current();
  const double least = top_ - count * deviation(values, count_);
  keep_if([&](uint32_t i) { return values[i] >= least && values[i] > -INFINITY; });
}

void Candidates::keep_count(uint32_t count) {
  // At least `count` blocks have a peak of this size, so at least `count` candidates have this value.
  constexpr uint32_t kBlock = 256;
  const float* values = current();
  peaks_.clear();
  for (uint32_t begin = 0; begin < count_; begin += kBlock)
    peaks_.push_back(peak_of(values + begin, std::min(kBlock, count_ - begin)).value);
  float least = -FLT_MAX;
  if (count <= peaks_.size()) {
    std::nth_element(peaks_.begin(), peaks_.begin() + (count - 1), peaks_.end(), std::greater<>());
    least = std::max(least, peaks_[count - 1]);
  }
  keep_if([&](uint32_t i) { return values[i] >= least; });
  std::fill_n(weights_.begin(), count_, 1.0f);
  keep_until(values_, reach(values_, count));
}

// The information of a token is log(total) - x with x = value - top, and the entropy is log(total) - m, where
// m is the mean of x by weight: so their distance is |x - m|, and no logarithm is needed.
void Candidates::keep_typical(double share) {
  const double total = weigh_current(1);
  keep_heavier(kNegligible);
  const double mean = weighted_sum(values_.data(), weights_.data(), count_, top_) / total;
  nearness_.resize(count_);
  for (uint32_t i = 0; i < count_; ++i) nearness_[i] = -float(std::fabs((double(values_[i]) - top_) - mean));
  keep_until(nearness_, reach(nearness_, share * total));
  top_ = peak_of(values_.data(), count_).value;
}

double Candidates::keep_share(double share) {
  const double total = weigh_current(1);
  keep_enough(share * total);
  keep_until(values_, reach(values_, share * total));
  return total;
}

void Candidates::keep_weight(double weight) {
  weigh_current(1);
  const double least = std::max(weight, double(kNegligible));
  keep_if([&](uint32_t i) { return weights_[i] >= least; });
}

void Candidates::drop_likeliest(double share) {
  const double least = std::max(share * weigh_current(1), double(kNegligible));
  const float* values = current();
  uint32_t likely = 0, last = 0;
  for (uint32_t i = 0; i < count_; ++i)
    if (weights_[i] >= least && (likely++ == 0 || values[i] <= values[last])) last = i;
  if (likely < 2) return;
  top_ = values[last];
  keep_if([&](uint32_t i) { return (values[i] < top_) | ((values[i] == top_) & (i >= last)); });
}

uint32_t Candidates::first() const {
  return tokens_[size_t(std::find(values_.begin(), values_.begin() + count_, top_) - values_.begin())];
}

uint32_t Candidates::draw(float scale, double share) {
  const double target = share * weigh_current(scale);
  keep_enough(target);
  return tokens_[reach(values_, target)];
}

// Returns the bucket in which the cumulative weight reaches the target, or the last bucket that is not empty
// if rounding keeps the sum below it.
Candidates::Bucket Candidates::find(double before, double target) const {
  Bucket found{0, before};
  double reached = before;
  for (uint32_t bucket = uint32_t(histogram_.size() / kParts); bucket-- > 0 && reached < target;) {
    const double* parts = &histogram_[bucket * kParts];
    const double weight = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    if (weight == 0) continue;
    found = {bucket, reached};
    reached += weight;
  }
  return found;
}

// Returns the index of the candidate at which the sum of weights reaches the target, or of the last
// candidate. Candidates with larger `ranks` come first, equal ones by token.
uint32_t Candidates::reach(const std::vector<float>& ranks, double target) {
  const uint32_t* inside = nullptr;  // candidates with the digits found so far; null: all
  uint32_t count = count_;
  double before = 0;
  for (const Digit digit : kDigits) {
    const auto candidate = [&](uint32_t n) { return inside ? inside[n] : n; };
    const auto bucket_of = [&](uint32_t i) { return key_of(ranks[i]) >> digit.shift & (digit.buckets - 1); };
    histogram_.assign(digit.buckets * kParts, 0.0);
    for (uint32_t n = 0; n < count; ++n) {
      const uint32_t i = candidate(n);
      histogram_[bucket_of(i) * kParts + n % kParts] += weights_[i];
    }
    const Bucket bucket = find(before, target);
    uint32_t found = 0;
    for (uint32_t n = 0; n < count; ++n) {
      const uint32_t i = candidate(n);
      positions_[found] = i;
      found += bucket_of(i) == bucket.number;
    }
    before = bucket.before;
    inside = positions_.data();
    count = found;
  }
  uint32_t last = 0;  // among equal values
  while (last + 1 < count && (before += weights_[inside[last]]) < target) ++last;
  return inside[last];
}

// Keeps candidate `last` and those that come before it in the order of `ranks`.
void Candidates::keep_until(const std::vector<float>& ranks, uint32_t last) {
  const float rank = ranks[last];
  keep_if([&](uint32_t i) { return (ranks[i] > rank) | ((ranks[i] == rank) & (i <= last)); });
}

}  // namespace pyturbo
