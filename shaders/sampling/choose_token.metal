// A token drawn from the largest logits, for a step that begins before the host has seen it.
#include <metal_stdlib>
using namespace metal;

constexpr constant uint kEach = 2;       // values of a lane, in order of rank
constexpr constant uint kForbidden = 8;  // tokens that may be forbidden

// Places in `rule`; floats are stored as their bits.
constexpr constant uint kCount = 0;   // how many values are kept
constexpr constant uint kShare = 1;   // of these, the fewest first ones with this share of all weight
constexpr constant uint kWeight = 2;  // of these, those that weigh at least this much
constexpr constant uint kScale = 3;   // 1 / temperature
constexpr constant uint kDraw = 4;    // a random number in (0, 1]
constexpr constant uint kFirst = 5;   // forbidden tokens, 0xffffffff for none
constexpr constant uint kNone = 0xffffffff;

inline bool is_forbidden(device const uint* rule, int token) {
  bool found = false;
#pragma unroll
  for (uint i = 0; i < kForbidden; ++i) found |= rule[kFirst + i] == uint(token);
  return found;
}

// drawn = seen = the first token, by rank, at which the weights e^((value - largest) / temperature) of those
// that are kept reach the random number's share of their sum. For what is kept the temperature is 1; it is none
// that is forbidden or below 0, nor has a value of -inf.
// Layout: values and tokens as top_logits_merge leaves them, the larger values first.
// Dispatch: groups (1), threads (32)
// Requires: k > 0; k <= 32 * kEach
// Numerics: weights and sums f32; with a count of 1 exact; a NaN gives any of the tokens, and where none is kept it is the first.
kernel void choose_token(
    device const float* values [[buffer(0)]],  // [k]
    device const int* tokens [[buffer(1)]],    // [k]
    device const uint* rule [[buffer(2)]],     // [kFirst + kForbidden]
    device int* drawn [[buffer(3)]],           // [1]
    device int* seen [[buffer(4)]],            // [1]
    constant uint& k [[buffer(5)]],
    uint lane [[thread_index_in_simdgroup]]) {
  float value[kEach];
  bool kept[kEach];
  uint allowed = 0;
#pragma unroll
  for (uint i = 0; i < kEach; ++i) {
    const uint at = kEach * lane + i;
    const int token = at < k ? tokens[at] : -1;
    value[i] = at < k ? values[at] : -INFINITY;
    kept[i] = token >= 0 && value[i] > -INFINITY && !is_forbidden(rule, token);
    allowed += kept[i];
  }
  uint rank = simd_prefix_exclusive_sum(allowed);
  float largest = -INFINITY;
#pragma unroll
  for (uint i = 0; i < kEach; ++i) {
    const bool first = rank < rule[kCount];
    rank += kept[i];
    kept[i] = kept[i] && first;
    if (kept[i]) largest = max(largest, value[i]);
  }
  largest = simd_max(largest);

  float weight[kEach];
#pragma unroll
  for (uint i = 0; i < kEach; ++i) weight[i] = kept[i] ? exp(value[i] - largest) : 0.0f;
  const float share = as_type<float>(rule[kShare]);
  const float enough = share * simd_sum(weight[0] + weight[1]);
  float before = simd_prefix_exclusive_sum(weight[0] + weight[1]);
#pragma unroll
  for (uint i = 0; i < kEach; ++i) {
    kept[i] = kept[i] && (share >= 1.0f || before < enough) && weight[i] >= as_type<float>(rule[kWeight]);
    before += weight[i];
  }

  const float scale = as_type<float>(rule[kScale]);
#pragma unroll
  for (uint i = 0; i < kEach; ++i) weight[i] = kept[i] ? exp((value[i] - largest) * scale) : 0.0f;
  const float target = as_type<float>(rule[kDraw]) * simd_sum(weight[0] + weight[1]);
  float sum = simd_prefix_exclusive_sum(weight[0] + weight[1]);
  uint reached = kNone;
  uint last = 0;
#pragma unroll
  for (uint i = 0; i < kEach; ++i) {
    const uint at = kEach * lane + i;
    sum += weight[i];
    if (kept[i]) last = at;
    if (kept[i] && sum >= target) reached = min(reached, at);
  }
  last = simd_max(last);
  const uint chosen = min(simd_min(reached), last);  // sums that are rounded may never reach it
  if (lane == 0) {
    drawn[0] = tokens[chosen];
    seen[0] = tokens[chosen];
  }
}
