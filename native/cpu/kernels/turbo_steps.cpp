// Scores and values of a compressed cache on their own: shaders/turboquant states what each kernel computes.
#include "cpu/kernels/attention.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/turbo_codes.h"
#include "cpu/kernels/turbo_launch.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr double kProductTime = 0.1;  // nanoseconds of one product

// The arguments that both kernels have from [[buffer(6)]] on.
struct Sizes {
  uint32_t batch, tokens, context, capacity, ring_start, heads, kv_heads, dim;
  uint32_t group, words;

  Sizes(const FastLaunch& launch, uint32_t bits) {
    uint32_t* const values[] = {&batch, &tokens, &context, &capacity, &ring_start, &heads, &kv_heads, &dim};
    for (uint32_t i = 0; i < 8; ++i) *values[i] = launch.value<uint32_t>(6 + i);
    group = heads / kv_heads;
    words = row_words(dim, bits);
  }

  // Of key `key` of key head `head` of all sequences.
  uint64_t slot(uint64_t head, uint32_t key) const {
    return head * capacity + (uint64_t(ring_start) + key) % capacity;
  }
  uint64_t row(uint64_t head, uint32_t token) const {
    return (head / kv_heads * tokens + token) * heads + head % kv_heads * group;
  }
  double time(double keys) const { return keys * group * dim * kProductTime; }
};

// Vector `slot` of the launch's rows.
template <uint32_t bits>
void expand(const FastLaunch& launch, const Sizes& a, const float* means, uint64_t slot, float* vector) {
  const uint32_t* packed = launch.buffer<uint32_t>(1) + slot * a.words;
  const F32 factor = splat(launch.buffer<float>(2)[slot] * (1.0f / __builtin_sqrtf(float(a.dim))));
  for (uint32_t i = 0; i < a.dim; i += kLanes) {
    F32 v = centroids_at<bits>(packed, i) * factor;
    if (means) v = fused(splat(means[slot]), load_floats(launch.buffer<float>(4) + i), v);
    store_floats(vector + i, v);
  }
}

// The scores of one key with all heads and tokens.
template <uint32_t bits, typename T>
void score_key(const FastLaunch& launch, const Sizes& a, const Mask& mask, uint64_t head, uint32_t key) {
  const float scale = launch.value<float>(14), cap = launch.value<float>(16);
  alignas(64) float vector[kMaxDim];
  expand<bits>(launch, a, launch.constant(2) ? launch.buffer<float>(3) : nullptr, a.slot(head, key), vector);
  for (uint32_t t = 0; t < a.tokens; ++t)
    for (uint32_t h = 0; h < a.group; ++h) {
      const uint64_t row = a.row(head, t) + h;
      const T* q = launch.buffer<T>(0) + row * a.dim;
      F32 sums = {};
      for (uint32_t i = 0; i < a.dim; i += kLanes)
        sums = fused(load_floats(q + i), load_floats(vector + i), sums);
      const float score = soft_cap(splat(scale * sum(sums)), cap)[0];
      const bool visible = mask.begin(t) <= key && key < mask.end(t);
      launch.buffer<float>(5)[row * a.context + key] = visible ? score : kNoScore;
    }
}

template <uint32_t bits, typename T>
void score(const FastLaunch& launch) {
  const Sizes a(launch, bits);
  const Mask mask = {int64_t(a.context) - a.tokens, a.context, launch.value<uint32_t>(15), /*causal=*/true};
  const uint64_t keys = uint64_t(a.batch) * a.kv_heads * a.context;
  launch.batch.add(keys, a.time(a.tokens), [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item)
      score_key<bits, T>(launch, a, mask, item / a.context, uint32_t(item % a.context));
  });
}

float as_float(float value) { return value; }
float as_float(Half value) { return load_floats(&value, 1, 1)[0]; }
float as_float(BFloat value) { return load_floats(&value, 1, 1)[0]; }

constexpr uint32_t kShared = 8;  // query heads of a key head that unpack a row together

// Heads [first, first + count) of a key head at one token.
template <uint32_t bits, typename T>
void sum_values(const FastLaunch& launch, const Sizes& a, uint64_t head, uint32_t token, uint32_t first,
                uint32_t count) {
  const float threshold = launch.value<float>(14);
  const float* means = launch.constant(1) ? launch.buffer<float>(3) : nullptr;
  const uint64_t row = a.row(head, token) + first;
  alignas(64) float vector[kMaxDim], sums[kShared][kMaxDim];
  for (uint32_t h = 0; h < count; ++h) std::memset(sums[h], 0, a.dim * sizeof(float));
  for (uint32_t key = 0; key < a.context; ++key) {
    float weights[kShared];
    bool taken[kShared], any = false;
    for (uint32_t h = 0; h < count; ++h) {
      weights[h] = as_float(launch.buffer<T>(0)[(row + h) * a.context + key]);
      taken[h] = !(threshold > 0 && weights[h] < threshold);
      any |= taken[h];
    }
    if (!any) continue;
    expand<bits>(launch, a, means, a.slot(head, key), vector);
    for (uint32_t h = 0; h < count; ++h)
      for (uint32_t i = 0; i < a.dim && taken[h]; i += kLanes)
        store_floats(sums[h] + i,
                     fused(splat(weights[h]), load_floats(vector + i), load_floats(sums[h] + i)));
  }
  for (uint32_t h = 0; h < count; ++h)
    for (uint32_t i = 0; i < a.dim; i += kLanes)
      store_floats(launch.buffer<T>(5) + (row + h) * a.dim + i, load_floats(sums[h] + i));
}

template <uint32_t bits, typename T>
void aggregate(const FastLaunch& launch) {
  const Sizes a(launch, bits);
  const uint32_t parts = (a.group + kShared - 1) / kShared;
  const uint64_t items = uint64_t(a.batch) * a.kv_heads * a.tokens * parts;
  launch.batch.add(items, a.time(a.context) / parts, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % parts) * kShared;
      const uint64_t pair = item / parts;
      sum_values<bits, T>(launch, a, pair / a.tokens, uint32_t(pair % a.tokens), first,
                          least(kShared, a.group - first));
    }
  });
}

template <uint32_t bits>
void score_by_type(const FastLaunch& launch) {
  switch (launch.format.type) {
    case DType::f16:
      return score<bits, Half>(launch);
    case DType::bf16:
      return score<bits, BFloat>(launch);
    default:
      return score<bits, float>(launch);
  }
}

template <uint32_t bits>
void aggregate_by_type(const FastLaunch& launch) {
  switch (launch.format.type) {
    case DType::f16:
      return aggregate<bits, Half>(launch);
    case DType::bf16:
      return aggregate<bits, BFloat>(launch);
    default:
      return aggregate<bits, float>(launch);
  }
}

}  // namespace

void turbo_scores(const FastLaunch& launch) {
  PYTURBO_BY_WIDTH(width_constant(launch, 0), score_by_type, launch);
}
void turbo_values(const FastLaunch& launch) {
  PYTURBO_BY_WIDTH(width_constant(launch, 0), aggregate_by_type, launch);
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
