// Scores and values of a compressed cache on their own: shaders/turboquant specifies each kernel.
#include "arguments/turboquant/turbo_scores.h"
#include "arguments/turboquant/turbo_values.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/turbo_codes.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr double kProductTime = 0.1;  // nanoseconds of one product
static_assert(arguments::turbo_scores<float>::kMaxDim <= kMaxDim);
static_assert(arguments::turbo_values<float>::kMaxDim <= kMaxDim);

// Shared by turbo_scores and turbo_values: the compressed rows, and the sizes.
struct Rows {
  const uint32_t* packed;
  const Half *scales, *means;
  const float* ones;
  uint32_t tokens, context, capacity, ring_start, heads, kv_heads, dim, group, words;

  template <typename A>
  Rows(const A& a, const uint32_t* packed, const Half* scales, const Half* means, uint32_t bits)
      : packed(packed),
        scales(scales),
        means(means),
        ones(a.ones),
        tokens(a.tokens),
        context(a.context),
        capacity(a.capacity),
        ring_start(a.ring_start),
        heads(a.heads),
        kv_heads(a.kv_heads),
        dim(a.dim),
        group(a.heads / a.kv_heads),
        words(row_words(a.dim, bits)) {}

  // Of key `key` of key head `head` of all sequences.
  uint64_t slot(uint64_t head, uint32_t key) const {
    return head * capacity + (uint64_t(ring_start) + key) % capacity;
  }
  uint64_t row(uint64_t head, uint32_t token) const {
    return (head / kv_heads * tokens + token) * heads + head % kv_heads * group;
  }
  double time(double keys) const { return keys * group * dim * kProductTime; }
};

// The vector of a slot.
template <uint32_t bits>
void expand(const Rows& c, uint64_t slot, float* vector) {
  const uint32_t* packed = c.packed + slot * c.words;
  const F32 factor = splat(load_float(c.scales + slot) * code_unit(bits));
  for (uint32_t i = 0; i < c.dim; i += kLanes) {
    F32 v = centroids_at<bits>(packed, i) * factor;
    if (c.means) v = fused(splat(load_float(c.means + slot)), load_floats(c.ones + i), v);
    store_floats(vector + i, v);
  }
}

// The scores of one key with all heads and tokens.
template <uint32_t bits, typename T>
void score_key(const arguments::turbo_scores<T>& a, const Rows& rows, const Mask& mask, uint64_t head,
               uint32_t key) {
  alignas(64) float vector[kMaxDim];
  expand<bits>(rows, rows.slot(head, key), vector);
  for (uint32_t t = 0; t < a.tokens; ++t)
    for (uint32_t h = 0; h < rows.group; ++h) {
      const uint64_t row = rows.row(head, t) + h;
      const T* q = a.q + row * a.dim;
      F32 sums = {};
      for (uint32_t i = 0; i < a.dim; i += kLanes)
        sums = fused(load_floats(q + i), load_floats(vector + i), sums);
      const float score = soft_cap(splat(a.scale * sum(sums)), a.softcap)[0];
      const bool visible = mask.begin(t) <= key && key < mask.end(t);
      a.scores[row * a.context + key] = visible ? score : kNoScore;
    }
}

template <uint32_t bits, typename T>
void score_keys(Batch& batch, const arguments::turbo_scores<T>& a) {
  const Rows rows(a, a.k_packed, a.k_scales, a.k_means, bits);
  const Mask mask = {int64_t(a.context) - a.tokens, a.context, a.window, /*causal=*/true};
  const uint64_t keys = uint64_t(a.batch) * a.kv_heads * a.context;
  batch.add(keys, rows.time(a.tokens), [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item)
      score_key<bits>(a, rows, mask, item / a.context, uint32_t(item % a.context));
  });
}

constexpr uint32_t kShared = 8;  // query heads of a key head that unpack a row together

// Heads [first, first + count) of a key head at one token.
template <uint32_t bits, typename T>
void sum_values(const arguments::turbo_values<T>& a, const Rows& rows, uint64_t head, uint32_t token,
                uint32_t first, uint32_t count) {
  const uint64_t row = rows.row(head, token) + first;
  alignas(64) float vector[kMaxDim], sums[kShared][kMaxDim];
  for (uint32_t h = 0; h < count; ++h) std::memset(sums[h], 0, a.dim * sizeof(float));
  for (uint32_t key = 0; key < a.context; ++key) {
    float weights[kShared];
    bool taken[kShared], any = false;
    for (uint32_t h = 0; h < count; ++h) {
      weights[h] = load_float(a.p + (row + h) * a.context + key);
      taken[h] = !(a.threshold > 0 && weights[h] < a.threshold);
      any |= taken[h];
    }
    if (!any) continue;
    expand<bits>(rows, rows.slot(head, key), vector);
    for (uint32_t h = 0; h < count; ++h)
      for (uint32_t i = 0; i < a.dim && taken[h]; i += kLanes)
        store_floats(sums[h] + i,
                     fused(splat(weights[h]), load_floats(vector + i), load_floats(sums[h] + i)));
  }
  for (uint32_t h = 0; h < count; ++h)
    for (uint32_t i = 0; i < a.dim; i += kLanes)
      store_floats(a.y + (row + h) * a.dim + i, load_floats(sums[h] + i));
}

template <uint32_t bits, typename T>
void sum_keys(Batch& batch, const arguments::turbo_values<T>& a) {
  const Rows rows(a, a.v_packed, a.v_scales, a.v_means, bits);
  const uint32_t parts = (rows.group + kShared - 1) / kShared;
  const uint64_t items = uint64_t(a.batch) * a.kv_heads * a.tokens * parts;
  batch.add(items, rows.time(a.context) / parts, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % parts) * kShared;
      const uint64_t pair = item / parts;
      sum_values<bits>(a, rows, pair / a.tokens, uint32_t(pair % a.tokens), first,
                       least(kShared, rows.group - first));
    }
  });
}

template <typename T>
void turbo_scores(Batch& batch, const arguments::turbo_scores<T>& a) {
  PYTURBO_BY_WIDTH(a.key_bits, score_keys, batch, a);
}

template <typename T>
void turbo_values(Batch& batch, const arguments::turbo_values<T>& a) {
  PYTURBO_BY_WIDTH(a.bits, sum_keys, batch, a);
}

}  // namespace

PYTURBO_BODIES(turbo_steps, PYTURBO_BODY(turbo_scores), PYTURBO_BODY(turbo_values))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
