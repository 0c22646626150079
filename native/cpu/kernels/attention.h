// Shared by the attention bodies: the counterpart of shaders/attention/attention.h.
#pragma once

#include "cpu/kernels/exponential.h"
#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr float kNoScore = -__builtin_inff();

// The keys that the queries of a launch see: query t sees [begin(t), end(t)).
struct Mask {
  int64_t start;  // context - tokens
  uint32_t context, window;
  bool causal;

  uint32_t begin(uint32_t t) const {
    const int64_t first = start + t + 1 - int64_t(window);
    return window == 0 || first < 0 ? 0 : uint32_t(first);
  }
  uint32_t end(uint32_t t) const {
    if (!causal) return context;
    return start + t + 1 < 0 ? 0 : uint32_t(start + t + 1);
  }
};

// cap * tanh(score / cap); cap = 0 leaves the scores.
PYTURBO_INLINE F32 soft_cap(F32 scores, float cap) {
  if (cap > 0)
    for (uint32_t l = 0; l < kLanes; ++l) scores[l] = cap * __builtin_tanhf(scores[l] / cap);
  return scores;
}

// e^(score - top); 1 where both are -inf, so that such keys are counted.
PYTURBO_INLINE F32 softmax_weights(F32 scores, float top) {
  const F32 weights = exponential(scores - top);
  if (top != kNoScore) return weights;
  return scores == kNoScore ? splat(1.0f) : weights;
}
PYTURBO_INLINE float softmax_weight(float score, float top) { return softmax_weights(splat(score), top)[0]; }

// The larger one, or the one that is a number.
PYTURBO_INLINE float larger_number(float a, float b) { return b > a || a != a ? b : a; }

// The factor of a sum of weighted values, where l is the sum of weights and m the largest score.
PYTURBO_INLINE float normalizer(float m, float l, float sink) {
  const float top = larger_number(m, sink);
  const float kept = softmax_weight(m, top);
  float sum = l * kept;
  if (sink != kNoScore) sum += softmax_weight(sink, top);
  if (sum == 0.0f) return 0.0f;
  return top == kNoScore ? __builtin_nanf("") : kept / sum;
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
