// attend_cache for NVIDIA's matrix units, for a cache of half or bfloat. Each warp has keys of its own, 16 at a time,
// which it loads straight into the registers of the matrix units; the warps join their sums in the end.
// Operands are of the type of the cache; queries and the weights of keys are sums of two values of that type.
#include "../../common/cuda/matrix_units.h"

// The queries of a threadgroup as operands in memory.queries: their high terms, then their low ones, by blocks of 16
// rows, units of 32 columns, halves of a unit, lanes. memory.factors has the factor of each row.
template <uint max_dim, uint rows, typename T>
struct StagedQueries {
  static constexpr uint kUnits = max_dim / 32, kTerm = rows / 16 * kUnits * 64;
  static_assert(
      2 * kSimdgroups <= kWeightStride,
      "memory.weights holds two values of each warp for each row");

  static void stage(
      const float* q,
      TileRows own,
      uint dim,
      TileMemory memory,
      uint tid,
      uint lane,
      uint simd) {
    for (uint row = simd; row < rows; row += kSimdgroups) {
      float largest = 0.0f;
      for (uint i = lane; row < own.count && i < dim; i += 32)
        largest = max(largest, abs(q[own.place(row) * dim + i]));
      const float factor = MatrixUnits<T>::range_factor(simd_max(largest));
      if (lane == 0) memory.factors[row] = factor;
    }
    ::__syncthreads();
    uint4* terms = reinterpret_cast<uint4*>(memory.queries);
    for (uint i = tid; i < kTerm; i += kThreads) {
      const uint column = i / 64 % kUnits * 32 + i % 4 * 8 + i / 32 % 2 * 4;
      PairTerms pairs[4];
#pragma unroll
      for (uint second = 0; second < 2; ++second) {
        const uint row = i / (kUnits * 64) * 16 + i % 32 / 4 + second * 8;
        float4 x = float4(0.0f);
        if (row < own.count && column < dim) {
          const float* from = q + own.place(row) * dim + column;
          x = float4{from[0], from[1], from[2], from[3]} * memory.factors[row];
        }
        pairs[second] = terms_of<T>(x.x, x.y);
        pairs[2 + second] = terms_of<T>(x.z, x.w);
      }
      terms[i] = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
      terms[kTerm + i] = uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
    }
    ::__syncthreads();
  }

  const uint4* terms;
  uint lane;

  uint4 high(uint block, uint unit, uint step) const {
    return terms[((block * kUnits + unit) * 2 + step) * 32 + lane];
  }
  uint4 low(uint block, uint unit, uint step) const {
    return terms[kTerm + ((block * kUnits + unit) * 2 + step) * 32 + lane];
  }
};

// The keys that a warp works on at once: `first` and 15 more, of which those from `end` on do not exist.
struct WarpKeys {
  uint first;
  uint end;
  bool all_visible;  // to all rows
  ulong offset[2];   // where keys g and g + 8 are in the cache
};

// The rows of a threadgroup as one warp sees them. Lane (g, t) has rows g and g + 8 of each block of 16.
template <uint max_dim, uint rows, typename T>
struct WarpRows {
  using Units = MatrixUnits<T>;
  static constexpr uint kBlocks = rows / 16, kUnits = max_dim / 32, kWarpKeys = 16;

  TileRows own;
  Mask mask;
  uint dim, g, t;
  float scale[kBlocks][2];                // of scores
  float top[kBlocks][2];                  // the largest scores
  float total[kBlocks][2];                // sums of weights, of the lane's own keys
  float values[kBlocks][max_dim / 8][4];  // weighted sums, at columns 8 t to 8 t + 7 of each unit
  float weights[kBlocks][2][4];           // of keys 2 t and 2 t + 1 of the first and the last eight

  uint query(uint block, uint second) const { return own.query(block * 16 + second * 8 + g); }

  // weights = scores of the keys.
  void score(
      const StagedQueries<max_dim, rows, T>& queries,
      const CacheSource<T>& k,
      const WarpKeys& keys,
      float softcap) {
    float sums[kBlocks][2][2][4] = {};  // those of the low terms apart: the units work on both at once
#pragma unroll
    for (uint u = 0; u < kUnits; ++u) {
      RowPart part[2];
#pragma unroll
      for (uint j = 0; j < 2; ++j) part[j].load(k.head + keys.offset[j] + u * 32, u * 32 + t * 8 < dim);
#pragma unroll
      for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
        for (uint step = 0; step < 2; ++step) {
          const uint4 high = queries.high(m, u, step), low = queries.low(m, u, step);
#pragma unroll
          for (uint j = 0; j < 2; ++j) {
            Units::multiply(sums[m][j][0], low, part[j].pairs[step * 2], part[j].pairs[step * 2 + 1]);
            Units::multiply(sums[m][j][1], high, part[j].pairs[step * 2], part[j].pairs[step * 2 + 1]);
          }
        }
      }
    }
#pragma unroll
    for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (uint e = 0; e < 8; ++e)
        weights[m][e / 4][e % 4] = soft_cap(
            scale[m][e % 4 / 2] * sum_of_terms(sums[m][e / 4][1][e % 4], sums[m][e / 4][0][e % 4]), softcap);
    }
  }

  // weights = those of the scores, times Units::kWeight. Sums of earlier keys become relative to the new top.
  void weigh(const WarpKeys& keys) {
    bool changed = false;
    float kept[kBlocks][2];
#pragma unroll
    for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (uint second = 0; second < 2; ++second) {
        const uint begin = mask.begin(query(m, second)), end = min(mask.end(query(m, second)), keys.end);
        float higher = top[m][second];
        bool seen[4];
#pragma unroll
        for (uint e = 0; e < 4; ++e) {
          const uint key = keys.first + e / 2 * 8 + t * 2 + e % 2;
          seen[e] = keys.all_visible || (begin <= key && key < end);
          if (seen[e]) higher = max(higher, weights[m][e / 2][second * 2 + e % 2]);
        }
        higher = max(higher, simd_shuffle_xor(higher, 1));
        higher = max(higher, simd_shuffle_xor(higher, 2));
        kept[m][second] = softmax_weight(top[m][second], higher);
        changed = changed || kept[m][second] != 1.0f;
        top[m][second] = higher;
        total[m][second] *= kept[m][second];
#pragma unroll
        for (uint e = 0; e < 4; ++e) {
          float& weight = weights[m][e / 2][second * 2 + e % 2];
          weight = seen[e] ? softmax_weight(weight, higher) : 0.0f;
          total[m][second] += weight;
          weight *= Units::kWeight;
        }
      }
    }
    if (!simd_any(changed)) return;
#pragma unroll
    for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (uint n = 0; n < max_dim / 8; ++n) {
#pragma unroll
        for (uint e = 0; e < 4; ++e) values[m][n][e] *= kept[m][e / 2];
      }
    }
  }

  // values += weights times the values of the keys.
  void add(const CacheSource<T>& v, const WarpKeys& keys) {
    uint4 high[kBlocks], low[kBlocks];
#pragma unroll
    for (uint m = 0; m < kBlocks; ++m) {
      PairTerms pairs[4];
#pragma unroll
      for (uint i = 0; i < 4; ++i)
        pairs[i] = terms_of<T>(weights[m][i / 2][i % 2 * 2], weights[m][i / 2][i % 2 * 2 + 1]);
      high[m] = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
      low[m] = uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
    }
#pragma unroll
    for (uint u = 0; u < kUnits; ++u) {
      RowPart part[2];
      bool finite = true;
#pragma unroll
      for (uint j = 0; j < 2; ++j) {
        part[j].load(v.head + keys.offset[j] + u * 32, u * 32 + t * 8 < dim);
#pragma unroll
        for (uint i = 0; i < 4; ++i) finite = finite && Units::is_finite(part[j].pairs[i]);
      }
      if (simd_any(!finite)) {
        add_visible(v, keys, u);
        continue;
      }
#pragma unroll
      for (uint i = 0; i < 4; ++i) {
        const uint b0 = transposed(part[0].pairs[i]), b1 = transposed(part[1].pairs[i]);
#pragma unroll
        for (uint m = 0; m < kBlocks; ++m) {
          Units::multiply(values[m][u * 4 + i], low[m], b0, b1);
          Units::multiply(values[m][u * 4 + i], high[m], b0, b1);
        }
      }
    }
  }

  // The same for a unit with values that are not finite. They must not reach rows that do not see them, and products with
  // both terms of a weight may have infinities of either sign.
  void add_visible(const CacheSource<T>& v, const WarpKeys& keys, uint unit) {
#pragma unroll 1
    for (uint key = 0; key < kWarpKeys && keys.first + key < keys.end; ++key) {
      const T* row = v.head + ulong(v.ring.row(keys.first + key)) * v.stride + unit * 32 + t * 8;
#pragma unroll
      for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
        for (uint second = 0; second < 2; ++second) {
          float weight = 0.0f;
#pragma unroll
          for (uint e = 0; e < 4; ++e) {
            const float other = simd_shuffle(weights[m][e / 2][second * 2 + e % 2], g * 4 + key % 8 / 2);
            if (key / 8 * 2 + key % 2 == e) weight = other;
          }
          if (unit * 32 + t * 8 >= dim || !mask.visible(query(m, second), keys.first + key)) continue;
#pragma unroll
          for (uint i = 0; i < 8; ++i) {
            float& sum = values[m][unit * 4 + i / 2][second * 2 + i % 2];
            sum = fma(weight, float(row[i]), sum);
          }
        }
      }
    }
  }

  // Joins the warps in memory.queries [rows, max_dim]: first their largest scores and sums of weights, then their values,
  // one warp after another.
  void join(const float* sinks, TileMemory memory, uint simd) {
    float* tops = memory.weights;  // [kSimdgroups, rows]
    float* totals = tops + kSimdgroups * rows;
#pragma unroll
    for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (uint second = 0; second < 2; ++second) {
        total[m][second] += simd_shuffle_xor(total[m][second], 1);
        total[m][second] += simd_shuffle_xor(total[m][second], 2);
        if (t > 0) continue;
        tops[simd * rows + m * 16 + second * 8 + g] = top[m][second];
        totals[simd * rows + m * 16 + second * 8 + g] = total[m][second];
      }
    }
    ::__syncthreads();
#pragma unroll
    for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (uint second = 0; second < 2; ++second) {
        const uint row = m * 16 + second * 8 + g;
        float highest = -INFINITY, all = 0.0f;
        for (uint w = 0; w < kSimdgroups; ++w)
          if (totals[w * rows + row] != 0.0f) highest = max(highest, tops[w * rows + row]);
        for (uint w = 0; w < kSimdgroups; ++w)
          if (totals[w * rows + row] != 0.0f)
            all += totals[w * rows + row] * softmax_weight(tops[w * rows + row], highest);
        const float sink = sinks != nullptr && row < own.count ? sinks[own.head(row)] : -INFINITY;
        const float factor =
            softmax_weight(top[m][second], highest) * normalizer(highest, all, sink) / Units::kWeight;
#pragma unroll
        for (uint i = 0; i < max_dim / 4; ++i) {
          float& value = values[m][i / 2][second * 2 + i % 2];
          value = total[m][second] != 0.0f ? value * factor : 0.0f;
        }
      }
    }
    for (uint w = 0; w < kSimdgroups; ++w) {
      if (w == simd) {
#pragma unroll
        for (uint m = 0; m < kBlocks; ++m) {
#pragma unroll
          for (uint n = 0; n < max_dim / 8; ++n) {
#pragma unroll
            for (uint e = 0; e < 4; ++e) {
              const uint column = n / 4 * 32 + t * 8 + n % 4 * 2 + e % 2;
              float& sum = memory.queries[(m * 16 + e / 2 * 8 + g) * max_dim + column];
              sum = w == 0 ? values[m][n][e] : sum + values[m][n][e];
            }
          }
        }
      }
      ::__syncthreads();
    }
  }
};

template <uint max_dim, uint rows, typename T>
inline void attend_cache(
    const float* q,
    const CacheSource<T>& k,
    const CacheSource<T>& v,
    TileRows own,
    Mask mask,
    float scale,
    float softcap,
    const float* sinks,
    float* y,
    TileMemory memory,
    uint tid,
    uint lane,
    uint simd) {
  const uint dim = k.dim;
  if constexpr (is_same_v<T, float> || max_dim > 256) {
    load_queries<rows>(q, dim, own, memory.queries, max_dim + kPad, 0, tid);
    attend_tiles<max_dim, rows>(k, v, own, mask, dim, dim, scale, softcap, sinks, y, memory, tid, lane, simd);
  } else {
    using Rows = WarpRows<max_dim, rows, T>;
    StagedQueries<max_dim, rows, T>::stage(q, own, dim, memory, tid, lane, simd);
    const StagedQueries<max_dim, rows, T> queries = {reinterpret_cast<const uint4*>(memory.queries), lane};
    Rows warp = {own, mask, dim, lane / 4, lane % 4};
#pragma unroll
    for (uint m = 0; m < Rows::kBlocks; ++m) {
#pragma unroll
      for (uint second = 0; second < 2; ++second) {
        warp.scale[m][second] = scale / memory.factors[m * 16 + second * 8 + warp.g];
        warp.top[m][second] = -INFINITY;
      }
    }
    const uint first_query = own.query(0), last_query = own.query(own.count - 1);
    WarpKeys keys = {mask.begin(first_query) + simd * Rows::kWarpKeys, mask.end(last_query)};
    for (; keys.first < keys.end; keys.first += kSimdgroups * Rows::kWarpKeys) {
      keys.all_visible =
          keys.first + Rows::kWarpKeys <= mask.end(first_query) && keys.first >= mask.begin(last_query);
#pragma unroll
      for (uint j = 0; j < 2; ++j)
        keys.offset[j] =
            ulong(k.ring.row(min(keys.first + j * 8 + warp.g, keys.end - 1))) * k.stride + warp.t * 8;
      warp.score(queries, k, keys, softcap);
      warp.weigh(keys);
      warp.add(v, keys);
    }
    warp.join(sinks, memory, simd);
    for (uint i = tid; i < own.count * max_dim; i += kThreads)
      if (i % max_dim < dim) y[own.place(i / max_dim) * dim + i % max_dim] = memory.queries[i];
  }
}
