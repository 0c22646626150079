// The passes of sampling over all logits. Their results have the same bits on every machine: they use only
// IEEE additions, multiplications and conversions, in a fixed order (CMakeLists.txt forbids contraction).
#pragma once

#include <bit>
#include <cstdint>

namespace pyturbo {

constexpr float kLeastExponent = -87.0f;  // its exponential is still a normal number

// exp(x) for x <= 0 with a relative error below 3e-7, exp(kLeastExponent) for anything less; exp(0) is 1.
[[gnu::always_inline]] inline float exponential(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // few enough bits for exact multiples
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits
  x = x > kLeastExponent ? x : kLeastExponent;
  const float shifted = x * kLog2E + kRound;
  const float power = shifted - kRound;
  const float r = (x - power * kLn2High) - power * kLn2Low;  // |r| <= ln(2) / 2
  float y = 1.0f / 720;                                      // Taylor series, from 1/6! down
  y = y * r + 1.0f / 120;
  y = y * r + 1.0f / 24;
  y = y * r + 1.0f / 6;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(shifted) << 23));
}

// Writes the weight of every value, exp((value - top) * scale), unless `weights` is null, and returns their
// sum. `top` is finite and no value is above it; `scale` is positive and finite.
double weigh(const float* values, uint32_t count, float top, float scale, float* weights = nullptr);

// Returns the sum of weight * (value - top).
double weighted_sum(const float* values, const float* weights, uint32_t count, float top);

// Returns the standard deviation of the values that are not -inf; there is at least one.
double deviation(const float* values, uint32_t count);

// Returns a tight lower bound of the sum of the weights that are at least `least`.
double least_sum_from(const float* weights, uint32_t count, float least);

// The largest logit of a block.
struct BlockPeak {
  float value;   // NaN left out
  bool refused;  // NaN or +inf is among them
};
BlockPeak peak_of(const float* logits, uint32_t count);

struct Peak {
  float value;
  uint32_t position;  // the first of equal values
};

// Returns the largest logit. Throws Error{argument}, with `op` in the message, for NaN, +inf, or only -inf.
Peak find_peak(const char* op, const float* logits, uint32_t count);

// Like find_peak, for logits that others may be writing: each is read once, into `copy`, and the peak is that
// of the copy.
Peak copy_logits(const char* op, const float* shared, uint32_t count, float* copy);

}  // namespace pyturbo
