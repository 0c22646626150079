// The router of DeepSeek-V3, and buckets that go back to their tokens: shaders/moe states what they compute.
#include "cpu/kernels/choose.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kMaxSets = 32;
constexpr float kLeastSum = 1e-20f;  // added to what weights are divided by
constexpr double kValueTime = 0.15;  // nanoseconds of one value that is added
constexpr uint32_t kStripe = 256;    // columns that one thread adds

// A launch of route_grouped.
struct Router {
  const float* bias;
  uint32_t experts, k, sets, kept;
  float scale;
  bool normalize;
};

void route_token(const Router& a, const float* logits, int32_t* ids, float* weights) {
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

}  // namespace

void route_grouped(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const Router a = {launch.buffer<float>(1), value(5),          value(6), value(7), value(8),
                    launch.value<float>(9),  launch.constant(0)};
  const double each = double(a.experts) * (a.k + 8) * kRankTime;
  launch.batch.add(value(4), each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t)
      route_token(a, launch.buffer<float>(0) + t * a.experts, launch.buffer<int32_t>(2) + t * a.k,
                  launch.buffer<float>(3) + t * a.k);
  });
}

void bucket_accumulate(const FastLaunch& launch) {
  const float *rows = launch.buffer<float>(0), *weights = launch.buffer<float>(2);
  const int32_t* owners = launch.buffer<int32_t>(1);
  float* y = launch.buffer<float>(3);
  const uint32_t tokens = launch.value<uint32_t>(4), count = launch.value<uint32_t>(5),
                 dim = launch.value<uint32_t>(6);
  const uint64_t stripes = (uint64_t(dim) + kStripe - 1) / kStripe;
  launch.batch.add(stripes, double(count) * kStripe * kValueTime, [=](uint64_t begin, uint64_t end) {
    const uint64_t first = begin * kStripe, last = least(end * kStripe, uint64_t(dim));
    for (uint64_t row = 0; row < count; ++row) {
      const uint64_t token = uint32_t(owners[row]);  // a negative one is a large one
      if (token >= tokens) continue;
      const float* from = rows + row * dim + first;
      float* to = y + token * dim + first;
      for_vectors(uint32_t(last - first), [&](uint32_t i, uint32_t some) {
        store_some(to + i, fused(splat(weights[row]), load_some(from + i, some), load_some(to + i, some)),
                   some);
      });
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
