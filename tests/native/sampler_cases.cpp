#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "native_test.h"
#include "sampling/candidates.h"
#include "sampling/softmax.h"

using pyturbo::Candidates;
using pyturbo::exponential;

namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

std::vector<float> normal_logits(uint32_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

}  // namespace

NATIVE_TEST(exponential_is_accurate_to_its_last_exponent) {
  CHECK_EQ(exponential(0), 1.0f);
  for (float x = 0; x > -87; x -= 0.00137f) CHECK(std::fabs(exponential(x) / std::exp(double(x)) - 1) < 3e-7);
  CHECK_EQ(exponential(kForbidden), exponential(-87));
  CHECK_EQ(exponential(-1e30f), exponential(-87));
}

// Also that vectors of the host give the bits of one value at a time.
NATIVE_TEST(weights_are_those_of_single_values) {
  for (uint32_t count : {1u, 31u, 1024u, 1025u, 5003u}) {
    std::vector<float> logits = normal_logits(count);
    logits[count / 2] = kForbidden;
    logits[0] = 20;
    std::vector<float> weights(count);
    double sum = 0;
    const double total = pyturbo::weigh(logits.data(), count, 20, 1.25f, weights.data());
    for (uint32_t i = 0; i < count; ++i) {
      CHECK_EQ(weights[i], exponential((logits[i] - 20) * 1.25f));
      sum += weights[i];
    }
    CHECK(std::fabs(total / sum - 1) < 1e-12);
    CHECK_EQ(pyturbo::weigh(logits.data(), count, 20, 1.25f), total);
  }
}

NATIVE_TEST(least_sum_is_below_the_sum) {
  const std::vector<float> weights(250003, 0.1f);
  const double sum = 250003.0 * 0.1f;
  const double least = pyturbo::least_sum_from(weights.data(), 250003, 0.1f);
  CHECK(least <= sum && least > 0.9999 * sum);
  CHECK_EQ(pyturbo::least_sum_from(weights.data(), 250003, 0.2f), 0.0);
}

NATIVE_TEST(peak_is_the_first_of_equals) {
  std::vector<float> logits(9000, -1.0f);
  for (uint32_t at : {8999u, 5000u, 4096u, 1023u, 33u, 0u}) {
    logits[at] = 7;
    CHECK_EQ(pyturbo::find_peak("peak", logits.data(), 9000).position, at);
  }
}

NATIVE_TEST(candidates_of_any_count_are_the_first_by_rank) {
  std::vector<float> logits = normal_logits(3001);
  for (uint32_t i = 0; i < 3001; i += 3) logits[i] = std::round(logits[i]);  // many are equal, some are -0
  logits[17] = kForbidden;
  std::vector<uint32_t> ranked(3001);
  for (uint32_t i = 0; i < 3001; ++i) ranked[i] = i;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });

  Candidates candidates;
  for (uint32_t count : {1u, 2u, 11u, 12u, 13u, 500u, 1499u, 2999u, 3000u, 3001u}) {
    candidates.start(logits.data(), 3001, logits[ranked[0]]);
    candidates.keep_count(count);
    std::vector<uint32_t> first(ranked.begin(), ranked.begin() + std::min(count, 3000u));
    std::sort(first.begin(), first.end());
    CHECK_EQ(candidates.count(), first.size());
    for (uint32_t i = 0; i < first.size(); ++i) CHECK_EQ(candidates.token(i), first[i]);
  }
}
