// Router of DeepSeek-V3: sigmoid scores, and the best experts of the best groups.
#include "../common/activations.h"
#include "choose.h"

constant bool normalize [[function_constant(0)]];

constexpr constant uint kTokens = 4;  // tokens of one threadgroup, one per simdgroup

// One expert of a token: the score that its weight is made of, and the one that decides the choice.
struct Rating {
  float score;
  float choice;
};

inline Rating rate(float logit, float bias) {
  const float score = sigmoid(logit);
  return Rating{score, score + bias};
}

// choice = sigmoid(logit) + bias. Experts form `sets` equal runs; the `kept` runs with the largest sum of
// their two best choices stay. ids = the k best choices in them; weights = scale * sigmoid(logit), with
// normalize divided by 1e-20 + the sum over the k.
// Layout: ids with the largest choice first, the lower id or run among equals.
// Dispatch: groups (ceil_div(tokens, kTokens)), threads (32 * kTokens)
// Requires: tokens > 0; experts > 0; experts <= 32 * kPerLane; k > 0; k <= 16; sets > 0; sets <= 32;
//   experts % sets == 0; kept > 0; kept <= sets; k <= experts / sets * kept
// Numerics: f32; NaN ranks first and is the weight of the expert it chooses, with normalize of the whole row.
kernel void route_grouped(
    device const float* logits [[buffer(0)]],  // [tokens, experts]
    device const float* bias [[buffer(1)]],    // [experts]
    device int* ids [[buffer(2)]],             // [tokens, k]
    device float* weights [[buffer(3)]],       // [tokens, k]
    constant uint& tokens [[buffer(4)]],
    constant uint& experts [[buffer(5)]],
    constant uint& k [[buffer(6)]],
    constant uint& sets [[buffer(7)]],
    constant uint& kept [[buffer(8)]],
    constant float& scale [[buffer(9)]],
    uint tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint token = tg * kTokens + simd;
  if (token >= tokens) return;

  logits += ulong(token) * experts;
  float choices[kPerLane];
#pragma unroll
  for (uint i = 0; i < kPerLane; ++i) {
    const uint expert = lane + 32 * i;
    choices[i] = expert < experts ? rate(logits[expert], bias[expert]).choice : 0.0f;
  }

  const uint size = experts / sets;
  uint set_key = 0;  // lane s keeps that of set s
  for (uint set = 0; set < sets; ++set) {
    float sum = 0.0f;
    uint taken = kNoIndex;
    for (uint place = 0; place < min(size, 2u); ++place) {
      Ranked best = {0, kNoIndex};
      float value = 0.0f;
#pragma unroll
      for (uint i = 0; i < kPerLane; ++i) {
        const uint expert = lane + 32 * i;
        if (expert >= experts || expert / size != set || expert == taken) continue;
        const uint key = order_key(choices[i]);
        if (key > best.key) {
          best = Ranked{key, expert};
          value = choices[i];
        }
      }
      const uint own = best.index;
      taken = simd_best(best).index;
      sum += simd_sum(own == taken ? value : 0.0f);
    }
    if (lane == set) set_key = order_key(sum);
  }

  uint keeps = 0;  // bit s: set s stays
  for (uint i = 0; i < kept; ++i) {
    const Ranked best = simd_best(Ranked{set_key, lane});
    keeps |= 1u << best.index;
    if (lane == best.index) set_key = 0;
  }

  uint keys[kPerLane];
#pragma unroll
  for (uint i = 0; i < kPerLane; ++i) {
    const uint expert = lane + 32 * i;
    const bool stays = expert < experts && ((keeps >> (expert / size)) & 1) != 0;
    keys[i] = stays ? order_key(choices[i]) : 0;
  }
  const uint own = choose_best(keys, k, lane);

  const Rating rating = rate(logits[own], bias[own]);
  const float weight = isnan(rating.choice) ? NAN : rating.score;
  const float total = simd_sum(lane < k ? weight : 0.0f);
  if (lane < k) {
    ids[ulong(token) * k + lane] = int(own);
    weights[ulong(token) * k + lane] = scale * (normalize ? weight / (total + 1e-20f) : weight);
  }
}
