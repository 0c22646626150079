// The router of DeepSeek-V3, and the way back from buckets to tokens: shaders/moe specifies both.
#include "arguments/moe/route_grouped.h"
#include "arguments/moe/bucket_accumulate.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/choose.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kMaxSets = 32;
constexpr float kLeastSum = 1e-20f;  // added to the divisor of weights
constexpr double kValueTime = 0.15;  // nanoseconds of one value that is added
constexpr uint32_t kStripe = 256;    // columns that one thread adds

static_assert(kSimdWidth * arguments::route_grouped::kPerLane <= kMaxExperts);

void route_token(const arguments::route_grouped& a, const float* logits, int32_t* ids, float* weights) {
  alignas(64) float scores[kMaxExperts], choices[kMaxExperts];
  uint32_t keys[kMaxExperts], set_keys[kMaxSets];
  for_vectors(a.experts, [&](uint32_t i, uint32_t count) {
    const F32 score = sigmoid(load_some(logits + i, count));
    store_some(scores + i, score, count);
    store_some(choices + i, score + load_some(a.bias + i, count), count);
  });
  const uint32_t size = a.experts / a.sets;
  for (uint32_t set = 0; set < a.sets; ++set) {
    for (uint32_t i = 0; i < size; ++i) keys[i] = order_key(choices[set * size + i]);
    float total = 0;
    for (uint32_t place = 0; place < least(size, 2u); ++place)
      total += choices[set * size + take_best(keys, size)];
    set_keys[set] = order_key(total);
  }
  for (uint32_t e = 0; e < a.experts; ++e) keys[e] = 0;
  for (uint32_t i = 0; i < a.kept; ++i) {
    const uint32_t first = take_best(set_keys, a.sets) * size;
    for (uint32_t e = first; e < first + size; ++e) keys[e] = order_key(choices[e]);
  }
  float total = 0;
  for (uint32_t i = 0; i < a.k; ++i) {
    const uint32_t best = take_best(keys, a.experts);
    ids[i] = int32_t(best);
    weights[i] = choices[best] != choices[best] ? __builtin_nanf("") : scores[best];
    total += weights[i];
  }
  for (uint32_t i = 0; i < a.k; ++i)
    weights[i] = a.scale * (a.normalize ? weights[i] / (total + kLeastSum) : weights[i]);
}

void route_grouped(Batch& batch, const arguments::route_grouped& a) {
  const double each = double(a.experts) * (a.k + 8) * kRankTime;
  batch.add(a.tokens, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t)
      route_token(a, a.logits + t * a.experts, a.ids + t * a.k, a.weights + t * a.k);
  });
}

void bucket_accumulate(Batch& batch, const arguments::bucket_accumulate& a) {
  const uint64_t stripes = (uint64_t(a.dim) + kStripe - 1) / kStripe;
  batch.add(stripes, double(a.count) * kStripe * kValueTime, [=](uint64_t begin, uint64_t end) {
    const uint64_t first = begin * kStripe, last = least(end * kStripe, uint64_t(a.dim));
    for (uint64_t row = 0; row < a.count; ++row) {
      const uint64_t token = uint32_t(a.owners[row]);  // a negative one is a large one
      if (token >= a.tokens) continue;
      const F32 weight = splat(a.weights[row]);
      const float* from = a.rows + row * a.dim + first;
      float* to = a.y + token * a.dim + first;
      for_vectors(uint32_t(last - first), [&](uint32_t i, uint32_t some) {
        store_some(to + i, fused(weight, load_some(from + i, some), load_some(to + i, some)), some);
      });
    }
  });
}

}  // namespace

PYTURBO_BODIES(route_grouped, PYTURBO_BODY(route_grouped), PYTURBO_BODY(bucket_accumulate))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
