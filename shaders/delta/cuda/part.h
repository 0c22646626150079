// Four tokens of the gated delta rule, on rows of the state that 16 lanes share.
#pragma once

#include "../../common/cuda/shared_rows.h"

constexpr uint kPart = 4;     // tokens that are taken at once
constexpr uint kLanes = 16;   // that share rows: a lane has columns 4 i to 4 i + 3 of each 64
constexpr uint kOwnRows = 4;  // of the state that they share

// Sum i of 16, over 16 lanes, for lane i of them. Changes p.
inline float sums_of_16(float* p, uint lane) {
  fold<8>(p, lane);
  fold<4>(p, lane);
  fold<2>(p, lane);
  fold<1>(p, lane);
  return p[0];
}

inline float4 load_four(const float* x) { return *reinterpret_cast<const float4*>(x); }

inline float add_dot(float4 a, float4 b, float sum) {
#pragma unroll
  for (uint i = 0; i < 4; ++i) sum = fma(a[i], b[i], sum);
  return sum;
}

// What the tokens of a part do to each other.
struct PartFactors {
  float steps[8];           // beta[j] G(j, i) (k[j] . k[i]) for i < j at j (j - 1) / 2 + i
  float weights[kPart][4];  // G(j, i) (q[j] . k[i]) for i <= j
  float kept[kPart];        // G(j)
  float ends[kPart];        // G(last, i)
  float rates[kPart];       // beta
};

// The factors of a part, of which `count` tokens exist, by 16 lanes; keys and queries from the lane's columns on.
template <uint fours>
inline void find_factors(
    const float* keys,
    const float* queries,
    const float* decays,
    const float* rates,
    uint count,
    PartFactors& factors,
    uint lane) {
  float dots[16] = {};  // k[j] . k[i], then q[j] . k[i]
#pragma unroll
  for (uint c = 0; c < fours; ++c) {
    float4 key[kPart], query[kPart];
#pragma unroll
    for (uint j = 0; j < kPart; ++j) {
      key[j] = load_four(keys + (j * fours + c) * 64);
      query[j] = load_four(queries + (j * fours + c) * 64);
    }
#pragma unroll
    for (uint j = 0; j < kPart; ++j) {
#pragma unroll
      for (uint i = 0; i <= j; ++i) {
        if (i < j) dots[j * (j - 1) / 2 + i] = add_dot(key[j], key[i], dots[j * (j - 1) / 2 + i]);
        dots[6 + j * (j + 1) / 2 + i] = add_dot(query[j], key[i], dots[6 + j * (j + 1) / 2 + i]);
      }
    }
  }
  const float dot = sums_of_16(dots, lane);
  const uint own = lane % kLanes, of_query = own < 6 ? 0 : own - 6;
  const uint j = own < 6 ? (own < 1   ? 1
                            : own < 3 ? 2
                                      : 3)
                         : (of_query < 1   ? 0
                            : of_query < 3 ? 1
                            : of_query < 6 ? 2
                                           : 3);
  const uint i = own < 6 ? own - j * (j - 1) / 2 : of_query - j * (j + 1) / 2;
  float between = 1.0f, before = 1.0f, after = 1.0f;  // G(j, i), and of lane t G(t) and G(last, t)
#pragma unroll
  for (uint t = 0; t < kPart; ++t) {
    const float decay = t < count ? decays[t] : 1.0f;
    if (i < t && t <= j) between *= decay;
    if (t <= own) before *= decay;
    if (t > own) after *= decay;
  }
  if (own < 6)
    factors.steps[own] = rates[j] * (between * dot);
  else
    factors.weights[j][i] = between * dot;
  if (own < kPart) {
    factors.kept[own] = before;
    factors.ends[own] = after;
    factors.rates[own] = rates[own];
  }
}

// A lane's columns of its rows.
template <uint fours>
struct OwnRows {
  float4 s[kOwnRows][fours];

  void load(const float* state, bool exist) {
#pragma unroll
    for (uint i = 0; i < kOwnRows * fours * 4; ++i)
      s[i / (fours * 4)][i / 4 % fours][i % 4] = exist ? state[i / 4 * 64 + i % 4] : 0.0f;
  }
  void store(float* state, bool exist) const {
#pragma unroll
    for (uint i = 0; i < kOwnRows * fours * 4; ++i)
      if (exist) state[i / 4 * 64 + i % 4] = s[i / (fours * 4)][i / 4 % fours][i % 4];
  }

  // Adds four tokens, of which `count` exist. Lane 4 r + j of 16 has the value of token j for row r, and gets y of them.
  float add_part(
      const float* keys,
      const float* queries,
      float value,
      const PartFactors& factors,
      uint count,
      uint lane) {
    float4 key[kPart][fours];
    float predicted[16] = {}, out[16] = {};  // S k and S q by row and token
#pragma unroll
    for (uint c = 0; c < fours; ++c) {
#pragma unroll
      for (uint j = 0; j < kPart; ++j) {
        key[j][c] = load_four(keys + (j * fours + c) * 64);
#pragma unroll
        for (uint r = 0; r < kOwnRows; ++r)
          predicted[r * 4 + j] = add_dot(s[r][c], key[j][c], predicted[r * 4 + j]);
      }
    }
    const uint own = lane % kPart;
    const float kept = factors.kept[own];
    const float sum = sums_of_16(predicted, lane);
    const float missing = factors.rates[own] * fma(-kept, sum, value);
#pragma unroll
    for (uint c = 0; c < fours; ++c) {
#pragma unroll
      for (uint j = 0; j < kPart; ++j) {
        const float4 query = load_four(queries + (j * fours + c) * 64);
#pragma unroll
        for (uint r = 0; r < kOwnRows; ++r) out[r * 4 + j] = add_dot(s[r][c], query, out[r * 4 + j]);
      }
    }
    // d of the lane's row; tokens that do not exist add nothing, whatever the state is.
    float d[kPart];
#pragma unroll
    for (uint j = 0; j < kPart; ++j) {
      d[j] = simd_shuffle(missing, ushort(lane / kPart * kPart + j));
#pragma unroll
      for (uint i = 0; i < j; ++i) d[j] = fma(-factors.steps[j * (j - 1) / 2 + i], d[i], d[j]);
      if (j >= count) d[j] = 0.0f;
    }
    float y = kept * sums_of_16(out, lane), added = d[0];
#pragma unroll
    for (uint i = 0; i < kPart; ++i) {
      if (i <= own) y = fma(factors.weights[own][i], d[i], y);
      if (i == own) added = factors.ends[own] * d[i];
    }
    const float total = factors.kept[kPart - 1];
#pragma unroll
    for (uint r = 0; r < kOwnRows; ++r) {
      float each[kPart];
#pragma unroll
      for (uint j = 0; j < kPart; ++j)
        each[j] = simd_shuffle(added, ushort(lane / kLanes * kLanes + r * kPart + j));
#pragma unroll
      for (uint i = 0; i < fours * 4; ++i) {
        float& x = s[r][i / 4][i % 4];
        x *= total;
#pragma unroll
        for (uint j = 0; j < kPart; ++j) x = fma(each[j], key[j][i / 4][i % 4], x);
      }
    }
    return y;
  }
};
