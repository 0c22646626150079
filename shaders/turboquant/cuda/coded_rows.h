// Rows of queries over tiles of a compressed cache. The rows of a tile are in units of a scale each, which scores and weights
// are multiplied with.
#pragma once

#include "../../attention/cuda/warp_rows.h"
#include "centroid_tables.h"

// What two neighbouring keys of a tile are multiplied with, each with its value: their scales or their means.
struct KeyPair {
  float key, value, next_key, next_value;

  float of_key(uint i) const { return i == 0 ? key : next_key; }
  float of_value(uint i) const { return i == 0 ? value : next_value; }
};

// One warp, as WarpRows. The sums are those of weights * scales * kWeight / unit.
template <typename Form, uint max_dim>
struct CodedRows : WarpRows<Form, max_dim, half> {
  using Base = WarpRows<Form, max_dim, half>;
  using Units = MatrixUnits<half>;
  using Base::weights, Base::values, Base::top, Base::total, Base::mask, Base::scale, Base::cap, Base::t;

  float offset[2];  // what a mean of 1 adds to a score
  float mean[2];    // sums of the lane's weights times means of values
  float unit[2];    // powers of two

  void start() {
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      top[second] = -INFINITY;
      unit[second] = power_above(0.0f);
    }
  }

  // weights = those of the values of `count` keys from `first` on, of which those from `end` on do not count, by the
  // products of queries and keys. Earlier sums become relative to the new top.
  template <uint count>
  void weigh(const KeyPair* scales, const KeyPair* means, uint first, uint end, bool all_visible) {
#pragma unroll
    for (uint n = 0; n < count / 8; ++n) {
      const KeyPair own = scales[n * 4 + t];
#pragma unroll
      for (uint e = 0; e < 4; ++e) {
        float& score = weights[n][e];
        score = score * scale[e / 2] * own.of_key(e % 2);
        if (bool(has_means)) score = fma(means[n * 4 + t].of_key(e % 2), offset[e / 2], score);
      }
    }
    if (cap > 0.0f) {
#pragma unroll
      for (uint i = 0; i < count / 2; ++i) {
        float& score = weights[i / 4][i % 4];
        score = tanh(score) * (cap * kLog2E);
      }
    }
    float changes[2];
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const uint query = this->query(second), from = mask.begin(query), to = min(mask.end(query), end);
      float higher = top[second];
#pragma unroll
      for (uint i = 0; i < count / 4; ++i) {
        float& score = weights[i / 2][second * 2 + i % 2];
        const uint key = first + i / 2 * 8 + t * 2 + i % 2;
        if (!all_visible && !(from <= key && key < to)) score = -INFINITY;
        higher = max(higher, score);
      }
      higher = max(higher, simd_shuffle_xor(higher, 1));
      higher = max(higher, simd_shuffle_xor(higher, 2));
      const float base = higher == -INFINITY ? 0.0f : higher;
      const float kept = exp2_fast(top[second] - base);
      top[second] = higher;
      total[second] *= kept;
      if (bool(has_means)) mean[second] *= kept;
      float largest = unit[second] * kept;
#pragma unroll
      for (uint i = 0; i < count / 4; ++i) {
        float& weight = weights[i / 2][second * 2 + i % 2];
        weight = exp2_fast((weight - base) + Units::kLogWeight);
        total[second] += weight;
        if (bool(has_means)) mean[second] = fma(weight, means[i / 2 * 4 + t].of_value(i % 2), mean[second]);
        weight *= scales[i / 2 * 4 + t].of_value(i % 2);
        largest = max(largest, abs(weight));
      }
      largest = max(largest, simd_shuffle_xor(largest, 1));
      largest = max(largest, simd_shuffle_xor(largest, 2));
      const float next = power_above(largest), reciprocal = reciprocal_of_power(next);
      changes[second] = kept * unit[second] * reciprocal;
      unit[second] = next;
#pragma unroll
      for (uint i = 0; i < count / 4; ++i) weights[i / 2][second * 2 + i % 2] *= reciprocal * Units::kWeight;
    }
    if (!simd_any(changes[0] != 1.0f || changes[1] != 1.0f)) return;
#pragma unroll
    for (uint n = 0; n < max_dim / 8; ++n) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) values[n][e] *= changes[e / 2];
    }
  }

  // Makes the sums those of WarpRows.
  void finish(const float* ones, uint dim) {
    Base::finish();
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      unit[second] /= Units::kWeight;
      if (!bool(has_means)) continue;
      mean[second] += simd_shuffle_xor(mean[second], 1);
      mean[second] += simd_shuffle_xor(mean[second], 2);
    }
#pragma unroll
    for (uint n = 0; n < max_dim / 8; ++n) {
      float2 one = float2(0.0f);
      if (bool(has_means) && n * 8 < dim) one = *reinterpret_cast<const float2*>(ones + n * 8 + t * 2);
#pragma unroll
      for (uint e = 0; e < 4; ++e) {
        values[n][e] *= unit[e / 2];
        if (bool(has_means)) values[n][e] = fma(mean[e / 2], one[e % 2], values[n][e]);
      }
    }
  }
};
