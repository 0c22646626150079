// Shared by all attention kernels: the keys that a query sees, the place of their rows, the online softmax.
#pragma once

#include <metal_stdlib>
using namespace metal;

// The keys that the queries of a launch see. The last query is at the last key: query t is at start + t.
struct Mask {
  int start;     // context - tokens; a query before position 0 sees no key if causal
  uint context;  // keys
  uint window;   // 0: no limit
  bool causal;

  // Query t sees the keys [begin(t), end(t)).
  uint begin(uint t) const { return window == 0 ? 0 : uint(max(0, start + int(t) + 1 - int(window))); }
  uint end(uint t) const { return causal ? uint(max(0, start + int(t) + 1)) : context; }
  bool visible(uint t, uint key) const { return begin(t) <= key && key < end(t); }
};

inline Mask make_mask(uint tokens, uint context, uint window, bool causal) {
  return Mask{int(context) - int(tokens), context, window, causal};
}

// Key j is in row j % capacity of its cache. Valid for the `capacity` keys from the one it was made for.
struct Ring {
  uint base;
  uint capacity;

  uint row(uint key) const {
    const uint row = key - base;
    return row < capacity ? row : row - capacity;
  }
};

inline Ring make_ring(uint first, uint capacity) { return Ring{first - first % capacity, capacity}; }

// cap * tanh(score / cap); cap = 0 leaves the score.
inline float soft_cap(float score, float cap) { return cap > 0.0f ? cap * tanh(score / cap) : score; }

// e^(score - top) for the largest score so far; 1 where both are -inf, so that such keys are counted.
inline float softmax_weight(float score, float top) {
  return score == -INFINITY && top == -INFINITY ? 1.0f : exp(score - top);
}

// The factor of a sum of weighted values, where l is the sum of weights and m the largest score: 1 / l,
// or 0 for a query without keys, or NaN where every score is -inf. A sink is one more score, of value 0.
inline float normalizer(float m, float l, float sink) {
  const float top = max(m, sink);
  const float kept = softmax_weight(m, top);
  float sum = l * kept;
  if (sink != -INFINITY) sum += exp(sink - top);
  if (sum == 0.0f) return 0.0f;
  return top == -INFINITY ? NAN : kept / sum;
}

// One kernel for each range of head dims and element type of the cache. `work` is how many heads or rows are
// worked on at once, which registers and threadgroup memory bound.
#define INSTANTIATE_ATTENTION_AS(op, max_dim, work, type, name) \
  template [[host_name(#op "_d" #max_dim                        \
                           "_" #name)]] kernel decltype(op<type, max_dim, work>) op<type, max_dim, work>;
#define INSTANTIATE_ATTENTION(op, max_dim, work)          \
  INSTANTIATE_ATTENTION_AS(op, max_dim, work, float, f32) \
  INSTANTIATE_ATTENTION_AS(op, max_dim, work, half, f16)  \
  INSTANTIATE_ATTENTION_AS(op, max_dim, work, bfloat, bf16)
