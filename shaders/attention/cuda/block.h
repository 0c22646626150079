// attend_block for NVIDIA's matrix units, for a cache of half or bfloat. The 16 rows that the units take are the high and
// the low terms of eight query heads, so that each row of the cache is read once for all of them. Each warp has keys of its
// own, 16 at a time, which it loads straight into registers; the warps join their sums in the end.
#include "../../common/cuda/matrix_units.h"

constexpr uint kUnitHeads = 8;

// Eight query heads as one warp sees them. Lane (g, t) has head g, and keys 2 t and 2 t + 1 of each eight.
template <uint max_dim, typename T>
struct WarpHeads {
  using Units = MatrixUnits<T>;
  static constexpr uint kUnits = max_dim / 32, kWarpKeys = 16, kRow = max_dim + 4;

  uint dim, count, lane, g, t;
  float top;    // the largest score
  float total;  // the sum of weights of the lane's keys
  float values[max_dim / 8]
              [4];  // weighted sums by high, then by low terms, at columns 8 t to 8 t + 7 of each unit

  // Makes operands of q [count, dim] in memory, by units of 32 columns, halves of a unit and lanes; returns the factor that
  // scores are to be multiplied with.
  float stage(const float* q, float* memory, uint simd) {
    float* factors = memory + kUnitHeads * max_dim;
    float largest = 0.0f;
    for (uint i = lane; simd < count && i < dim; i += 32) largest = max(largest, abs(q[simd * dim + i]));
    largest = simd_max(largest);
    if (lane == 0) factors[simd] = Units::range_factor(largest);
    ::__syncthreads();
    for (uint i = simd * 32 + lane; i < kUnits * 64; i += kOnlineSimdgroups * 32) {
      const uint head = i % 32 / 4, column = i / 64 * 32 + i % 4 * 8 + i / 32 % 2 * 4;
      float4 x = float4(0.0f);
      if (head < count && column < dim)
        x = *reinterpret_cast<const float4*>(q + head * dim + column) * factors[head];
      const PairTerms first = terms_of<T>(x.x, x.y), second = terms_of<T>(x.z, x.w);
      reinterpret_cast<uint4*>(memory)[i] = uint4{first.high, first.low, second.high, second.low};
    }
    const float factor = factors[g];
    ::__syncthreads();
    return 1.0f / factor;
  }

  // Adds keys `first` and up to 15 more of the block.
  void add(const KeyBlock<T>& keys, uint first, float scale, const uint4* queries) {
    RowPart part[kUnits][2];
    ulong place[2];
#pragma unroll
    for (uint j = 0; j < 2; ++j) {
      place[j] = keys.ring.row(min(first + j * 8 + g, keys.to - 1)) * keys.stride + t * 8;
#pragma unroll
      for (uint u = 0; u < kUnits; ++u)
        part[u][j].load(keys.k + place[j] + u * 32, exists(keys, first, u, j));
    }
    float sums[2][4] = {};
#pragma unroll
    for (uint i = 0; i < kUnits * 2; ++i) {
      const uint4 query = queries[i * 32 + lane];
#pragma unroll
      for (uint j = 0; j < 2; ++j)
        Units::multiply(sums[j], query, part[i / 2][j].pairs[i % 2 * 2], part[i / 2][j].pairs[i % 2 * 2 + 1]);
    }
#pragma unroll
    for (uint j = 0; j < 2; ++j) {
#pragma unroll
      for (uint u = 0; u < kUnits; ++u)
        part[u][j].load(keys.v + place[j] + u * 32, exists(keys, first, u, j));
    }
    PairTerms weights[2];
    weigh(keys, first, scale, sums, weights);
    const uint4 operand = {weights[0].high, weights[0].low, weights[1].high, weights[1].low};
#pragma unroll
    for (uint i = 0; i < kUnits * 4; ++i)
      Units::multiply(
          values[i], operand, transposed(part[i / 4][0].pairs[i % 4]),
          transposed(part[i / 4][1].pairs[i % 4]));
  }

  bool exists(const KeyBlock<T>& keys, uint first, uint unit, uint j) const {
    return unit * 32 + t * 8 < dim && first + j * 8 + g < keys.to;
  }

  // The weights of the lane's keys, of the sums of high and low products. Earlier sums become relative to the new top.
  void weigh(
      const KeyBlock<T>& keys,
      uint first,
      float scale,
      const float (&sums)[2][4],
      PairTerms (&weights)[2]) {
    float scores[4], higher = top;
    bool seen[4];
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      scores[e] = soft_cap(scale * sum_of_terms(sums[e / 2][e % 2], sums[e / 2][2 + e % 2]), keys.softcap);
      seen[e] = first + e / 2 * 8 + t * 2 + e % 2 < keys.to;
      if (seen[e]) higher = max(higher, scores[e]);
    }
    higher = max(higher, simd_shuffle_xor(higher, 1));
    higher = max(higher, simd_shuffle_xor(higher, 2));
    const float kept = softmax_weight(top, higher);
    top = higher;
    total *= kept;
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      scores[e] = seen[e] ? softmax_weight(scores[e], higher) : 0.0f;
      total += scores[e];
    }
#pragma unroll
    for (uint j = 0; j < 2; ++j)
      weights[j] = terms_of<T>(scores[2 * j] * Units::kWeight, scores[2 * j + 1] * Units::kWeight);
    if (!simd_any(kept != 1.0f)) return;
#pragma unroll
    for (uint i = 0; i < kUnits * 4; ++i) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) values[i][e] *= kept;
    }
  }

  // Joins the warps: first their largest scores and sums of weights, then their values, one warp after another.
  void join(BlockSums sums, float* memory, uint simd) {
    float *tops = memory, *totals = memory + kOnlineSimdgroups * kUnitHeads;
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    ::__syncthreads();  // no warp needs the queries any more
    if (t == 0) {
      tops[simd * kUnitHeads + g] = top;
      totals[simd * kUnitHeads + g] = total;
    }
    ::__syncthreads();
    float highest = -INFINITY, all = 0.0f;
#pragma unroll
    for (uint w = 0; w < kOnlineSimdgroups; ++w)
      if (totals[w * kUnitHeads + g] != 0.0f) highest = max(highest, tops[w * kUnitHeads + g]);
#pragma unroll
    for (uint w = 0; w < kOnlineSimdgroups; ++w)
      if (totals[w * kUnitHeads + g] != 0.0f)
        all += totals[w * kUnitHeads + g] * softmax_weight(tops[w * kUnitHeads + g], highest);
    const float factor = softmax_weight(top, highest) / Units::kWeight;
    ::__syncthreads();
#pragma unroll 1
    for (uint w = 0; w < kOnlineSimdgroups; ++w) {
      if (w == simd && (w == 0 || total != 0.0f)) {
#pragma unroll
        for (uint i = 0; i < kUnits * 2; ++i) {
          float4& sum = *reinterpret_cast<float4*>(memory + g * kRow + i / 2 * 32 + t * 8 + i % 2 * 4);
          float4 own = float4(0.0f);
#pragma unroll
          for (uint e = 0; e < 4; ++e)
            if (total != 0.0f)
              own[e] = factor * sum_of_terms(values[2 * i + e / 2][e % 2], values[2 * i + e / 2][2 + e % 2]);
          sum = w == 0 ? own : sum + own;
        }
      }
      ::__syncthreads();
    }
    for (uint h = 0; h < count; ++h) {
      for (uint i = simd * 32 + lane; i < dim; i += 32 * kOnlineSimdgroups)
        sums.o[ulong(h) * sums.blocks * dim + i] = memory[h * kRow + i];
    }
    if (simd == 0 && t == 0 && g < count) {
      sums.m[ulong(g) * sums.blocks] = highest;
      sums.l[ulong(g) * sums.blocks] = all;
    }
  }
};

template <uint max_dim, uint shared, typename T>
inline void attend_block(
    const float* q,
    KeyBlock<T> keys,
    uint group,
    uint part,
    BlockSums sums,
    float* memory,
    uint simd,
    uint lane) {
  if constexpr (is_same_v<T, float> || max_dim > 256) {
    attend_online<max_dim, shared>(q, keys, group, part, sums, memory, simd, lane);
  } else {
    const uint first = part * kUnitHeads;
    if (first >= group) return;  // a threadgroup before this one has these heads
    using Heads = WarpHeads<max_dim, T>;
    Heads heads = {keys.dim, min(kUnitHeads, group - first), lane, lane / 4, lane % 4, -INFINITY};
    const float scale = keys.scale * heads.stage(q + first * keys.dim, memory, simd);
    for (uint at = keys.from + simd * Heads::kWarpKeys; at < keys.to;
         at += kOnlineSimdgroups * Heads::kWarpKeys)
      heads.add(keys, at, scale, reinterpret_cast<const uint4*>(memory));
    const ulong place = ulong(first) * sums.blocks;
    heads.join({sums.o + place * keys.dim, sums.m + place, sums.l + place, sums.blocks}, memory, simd);
  }
}
