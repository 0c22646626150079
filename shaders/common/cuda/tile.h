// multiply_tile for NVIDIA's matrix units.
//
// x is rounded to the sum of two bf16 values, 17 bits. Codes are exact in bf16: the products of a group are summed
// in f32, then multiplied by its scale. Where a unit has several scales, weights are such sums as well, and
// three of the four products are added up. A lane decodes its weights straight into operands.
#include "matrix_units.h"

using Units = MatrixUnits<bfloat>;

// Eight weights of a lane, four for each step.
struct OctetTerms {
  uint high[4];
  uint low[4];
};

inline OctetTerms octet_terms(const float* values) {
  OctetTerms terms;
#pragma unroll
  for (uint i = 0; i < 4; ++i) {
    const PairTerms pair = terms_of<bfloat>(values[2 * i], values[2 * i + 1]);
    terms.high[i] = pair.high;
    terms.low[i] = pair.low;
  }
  return terms;
}

// Eight values that bf16 holds exactly.
inline OctetTerms exact_terms(const float* values) {
  OctetTerms terms;
#pragma unroll
  for (uint i = 0; i < 4; ++i)
    terms.high[i] = ::__byte_perm(as_type<uint>(values[2 * i]), as_type<uint>(values[2 * i + 1]), 0x7632);
  return terms;
}

// c += a b for 16 tokens and a unit; a[step] are the terms of a lane.
template <bool exact>
inline void multiply_unit(float (&c)[4], const uint4 (&high)[2], const uint4 (&low)[2], const OctetTerms& b) {
#pragma unroll
  for (uint step = 0; step < 2; ++step) {
    if (!exact) Units::multiply(c, high[step], b.low[step * 2], b.low[step * 2 + 1]);
    Units::multiply(c, low[step], b.high[step * 2], b.high[step * 2 + 1]);
    Units::multiply(c, high[step], b.high[step * 2], b.high[step * 2 + 1]);
  }
}

template <uint count, typename W>
inline void multiply_tile(
    const W* w,
    const float* x,
    uint rows,
    uint in,
    uint units,
    uint first,
    uint out,
    float factor,
    float* y,
    uint tid,
    float* memory) {
  constexpr uint kTokenBlocks = kTileTokens / 16;
  constexpr uint kPlane = kTileTokens * kOctets;    // octets of a term of x
  constexpr bool kScaled = W::kSharesScale;         // the products of a group are scaled, not the weights
  constexpr bool kBiased = kScaled && W::kHasBias;  // by the sums of x
  static_assert(4 * 4 * kPlane + 2 * kTileTokens <= kTileFloats, "x and its sums are staged twice");
  uint4* planes = reinterpret_cast<uint4*>(memory);  // two buffers of the high and the low terms
  float* totals = memory + 4 * 4 * kPlane;           // two buffers of the sums of x in a group so far
  const uint lane = tid % 32, g = lane / 4, t = lane % 4;
  const uint warp_first = first + tid / 32 * (kSimdgroupOuts / count);  // of two matrices, 8 outs of each
  // A thread stages what one lane needs of one step: four ins of two tokens, 8 apart.
  const uint staged_step = lane / 16, staged_lane = tid / 32 % 2 * 16 + lane % 16;
  const uint staged_token = tid / 64 * 16 + staged_lane / 4;
  const uint staged_place = (tid / 64 * 2 + staged_step) * 32 + staged_lane;
  const float* source = x + t * kOctet + staged_step * 4;
  const float* sources[2];
#pragma unroll
  for (uint i = 0; i < 2; ++i) sources[i] = source + ulong(min(staged_token + i * 8, rows - 1)) * in;
  uint row[2];
#pragma unroll
  for (uint j = 0; j < 2; ++j) row[j] = min(warp_first + (count == 1 ? j * 8 : 0) + g, out - 1);

  float4 next_x[2];
  typename W::Octet next_w[2];
  const auto fetch = [&](uint unit) {
#pragma unroll
    for (uint i = 0; i < 2; ++i) next_x[i] = *reinterpret_cast<const float4*>(sources[i] + unit * kUnit);
    const bool starts = !kScaled || unit == 0 || ends_group(w[0], unit - 1);
#pragma unroll
    for (uint j = 0; j < 2; ++j) {
      const W& matrix = w[count == 1 ? 0 : j];
      fetch_codes(matrix, row[j], unit, t, next_w[j]);
      if (starts) fetch_scale(matrix, row[j], unit, t, next_w[j]);
    }
  };

  OctetTerms b[2];
  float2 scale[2];
  float total[2] = {};
  const auto keep = [&](uint unit) {
    PairTerms pairs[4];  // ins 0, 1 of both tokens, then ins 2, 3
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
      pairs[i] = terms_of<bfloat>(next_x[i].x, next_x[i].y);
      pairs[2 + i] = terms_of<bfloat>(next_x[i].z, next_x[i].w);
    }
    uint4* target = planes + unit % 2 * 2 * kPlane + staged_place;
    target[0] = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    target[kPlane] = uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
    if (kBiased) {
#pragma unroll
      for (uint i = 0; i < 2; ++i) {
        float sum = (next_x[i].x + next_x[i].y) + (next_x[i].z + next_x[i].w);
        sum += simd_shuffle_xor(sum, 1);
        sum += simd_shuffle_xor(sum, 2);
        sum += simd_shuffle_xor(sum, 16);
        total[i] = unit == 0 || ends_group(w[0], unit - 1) ? sum : total[i] + sum;
        if (t == 0 && staged_step == 0) totals[unit % 2 * kTileTokens + staged_token + i * 8] = total[i];
      }
    }
#pragma unroll
    for (uint j = 0; j < 2; ++j) {
      const W& matrix = w[count == 1 ? 0 : j];
      float weights[kOctet];
      if (kScaled) {
        scale[j] = scale_of(matrix, next_w[j]);
        decode_octet(matrix, next_w[j], t, weights);
        b[j] = exact_terms(weights);
      } else {
        expand_octet(matrix, next_w[j], t, weights);
        b[j] = octet_terms(weights);
      }
    }
  };

  float result[kTokenBlocks][2][4] = {}, group[kTokenBlocks][2][4] = {};
  const auto add_group = [&](uint unit) {
#pragma unroll
    for (uint e = 0; e < 2; ++e) {
#pragma unroll
      for (uint j = 0; j < 2; ++j) {
        const float factor = simd_shuffle(scale[j].x, (t * 2 + e) * 4);
        const float bias = kBiased ? simd_shuffle(scale[j].y, (t * 2 + e) * 4) : 0.0f;
#pragma unroll
        for (uint m = 0; m < kTokenBlocks; ++m) {
#pragma unroll
          for (uint i = e; i < 4; i += 2) {
            result[m][j][i] = fma(group[m][j][i], factor, result[m][j][i]);
            group[m][j][i] = 0;
            if (kBiased)
              result[m][j][i] =
                  fma(totals[unit % 2 * kTileTokens + m * 16 + i / 2 * 8 + g], bias, result[m][j][i]);
          }
        }
      }
    }
  };

  if (units > 0 && rows > 0) {
    fetch(0);
    keep(0);
    ::__syncthreads();
    for (uint unit = 0; unit < units; ++unit) {
      if (unit + 1 < units) fetch(unit + 1);
      const uint4* plane = planes + unit % 2 * 2 * kPlane + lane;
#pragma unroll
      for (uint m = 0; m < kTokenBlocks; ++m) {
        if (m * 16 >= rows) continue;
        const uint4 high[2] = {plane[m * 64], plane[m * 64 + 32]};
        const uint4 low[2] = {plane[kPlane + m * 64], plane[kPlane + m * 64 + 32]};
#pragma unroll
        for (uint j = 0; j < 2; ++j)
          multiply_unit<kScaled>(kScaled ? group[m][j] : result[m][j], high, low, b[j]);
      }
      if (kScaled && ends_group(w[0], unit)) add_group(unit);
      if (unit + 1 < units) keep(unit + 1);
      ::__syncthreads();
    }
  }

#pragma unroll
  for (uint m = 0; m < kTokenBlocks; ++m) {
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      const uint token = m * 16 + e / 2 * 8 + g;
      if (token >= rows) continue;
#pragma unroll
      for (uint j = 0; j < 3 - count; ++j) {
        const uint column = warp_first + j * 8 + t * 2 + e % 2;
        if (column < out)
          y[ulong(token) * out + column] =
              count == 1 ? result[m][j][e] * factor : silu(result[m][0][e]) * result[m][1][e];
      }
    }
  }
}
