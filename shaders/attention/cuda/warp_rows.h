// Rows of queries over keys and values in shared memory, on NVIDIA's matrix units. A Form has kRows rows, teams of
// kTeamThreads threads and kKeys keys of a tile.
//
// Operands are of one type; queries and the weights of keys are sums of two values of that type.
#pragma once

#include "../../common/cuda/matrix_units.h"
#include "../../common/cuda/shared_rows.h"

constexpr float kLog2E = 1.44269504f;

// One warp: lane (g, t) has rows g and g + 8 of its 16.
template <typename Form, uint max_dim, typename T>
struct WarpRows {
  using Units = MatrixUnits<T>;
  using Rows = SharedRows<max_dim>;
  static constexpr uint kKeys = Form::kKeys;

  TileRows own;
  Mask mask;
  uint first_row, lane, g, t;
  float scale[2], cap;           // of scores; those with a cap are divided by it first
  float top[2];                  // the largest scores so far, times log2 e
  float total[2];                // sums of the lane's weights
  float weights[kKeys / 8][4];   // of keys 2 t and 2 t + 1 of each eight, times Units::kWeight
  float values[max_dim / 8][4];  // weighted sums, of columns 2 t and 2 t + 1 of each eight

  uint query(uint second) const { return own.query(first_row + second * 8 + g); }

  // Whether all rows of the threadgroup see the keys [from, to), none of them after `end`.
  bool all_visible(uint from, uint to, uint end) const {
    return to <= min(mask.end(own.query(0)), end) && from >= mask.begin(own.query(own.count - 1));
  }

  // weights = products of queries and `count` keys. With `terms`, as many rows after the keys have their low terms.
  template <uint count = kKeys, bool terms = false>
  void score(const T* queries, const T* keys) {
#pragma unroll
    for (uint n = 0; n < count / 8; ++n) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) weights[n][e] = 0.0f;
    }
    const uint query = Rows::of_16(queries, first_row, lane), row = Rows::of_two_8(keys, 0, lane);
#pragma unroll
    for (uint step = 0; step < max_dim / 16; ++step) {
      const uint4 high = load_matrices(Rows::further(query, step * 2));
      const uint4 low = load_matrices(Rows::further(query, step * 2) + Form::kTerm * 2);
#pragma unroll
      for (uint n = 0; n < count / 16; ++n) {
        const uint4 key = load_matrices(Rows::further(row, step * 2) + n * 16 * Rows::kRowBytes);
        if (terms) {
          const uint4 rest = load_matrices(Rows::further(row, step * 2) + (count + n * 16) * Rows::kRowBytes);
          Units::multiply(weights[n * 2], high, rest.x, rest.y);
          Units::multiply(weights[n * 2 + 1], high, rest.z, rest.w);
        }
        Units::multiply(weights[n * 2], low, key.x, key.y);
        Units::multiply(weights[n * 2 + 1], low, key.z, key.w);
        Units::multiply(weights[n * 2], high, key.x, key.y);
        Units::multiply(weights[n * 2 + 1], high, key.z, key.w);
      }
    }
  }

  // weights = those of the scores of the keys from `first` on. Sums of earlier keys become relative to the new top.
  void weigh(uint first, bool all_visible) {
    bool changed = false;
    float kept[2];
    if (cap > 0.0f) {
#pragma unroll
      for (uint i = 0; i < kKeys / 2; ++i) {
        float& score = weights[i / 4][i % 4];
        score = tanh(score * scale[i % 4 / 2]) * cap;
      }
    }
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const float factor = cap > 0.0f ? kLog2E : scale[second];
      const uint begin = mask.begin(query(second)), end = mask.end(query(second));
      float higher = top[second];
#pragma unroll
      for (uint i = 0; i < kKeys / 4; ++i) {
        float& score = weights[i / 2][second * 2 + i % 2];
        score *= factor;
        const uint key = first + i / 2 * 8 + t * 2 + i % 2;
        if (!all_visible && !(begin <= key && key < end)) score = -INFINITY;
        higher = max(higher, score);
      }
      higher = max(higher, simd_shuffle_xor(higher, 1));
      higher = max(higher, simd_shuffle_xor(higher, 2));
      const float base = higher == -INFINITY ? 0.0f : higher;
      kept[second] = exp2_fast(top[second] - base);
      changed = changed || kept[second] != 1.0f;
      top[second] = higher;
      total[second] *= kept[second];
#pragma unroll
      for (uint i = 0; i < kKeys / 4; ++i) {
        float& weight = weights[i / 2][second * 2 + i % 2];
        weight = exp2_fast((weight - base) + Units::kLogWeight);
        total[second] += weight;
      }
    }
    if (!simd_any(changed)) return;
#pragma unroll
    for (uint n = 0; n < max_dim / 8; ++n) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) values[n][e] *= kept[e / 2];
    }
  }

  // values += weights times the values of `count` keys, with their low terms as those of keys.
  template <uint count = kKeys, bool terms = false>
  void add(const T* rows) {
    const uint row = Rows::of_16(rows, 0, lane);
#pragma unroll
    for (uint step = 0; step < count / 16; ++step) {
      PairTerms pairs[4];
#pragma unroll
      for (uint i = 0; i < 4; ++i) {
        const float(&pair)[4] = weights[step * 2 + i / 2];
        pairs[i] = terms_of<T>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
      const uint4 high = {pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
      const uint4 low = {pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
#pragma unroll
      for (uint n = 0; n < max_dim / 16; ++n) {
        const uint4 value = load_turned(Rows::further(row, n * 2) + step * 16 * Rows::kRowBytes);
        if (terms) {
          const uint4 rest = load_turned(Rows::further(row, n * 2) + (count + step * 16) * Rows::kRowBytes);
          Units::multiply(values[n * 2], high, rest.x, rest.y);
          Units::multiply(values[n * 2 + 1], high, rest.z, rest.w);
        }
        Units::multiply(values[n * 2], low, value.x, value.y);
        Units::multiply(values[n * 2 + 1], low, value.z, value.w);
        Units::multiply(values[n * 2], high, value.x, value.y);
        Units::multiply(values[n * 2 + 1], high, value.z, value.w);
      }
    }
  }

  // Sums of the weights of all four lanes of a row, relative to 1.
  void finish() {
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      total[second] += simd_shuffle_xor(total[second], 1);
      total[second] += simd_shuffle_xor(total[second], 2);
    }
  }

  // What a lane leaves in memory for the same lane of another team.
  static constexpr uint kShared = 4 + max_dim / 2;
  void leave(float* memory, uint tid) const {
#pragma unroll
    for (uint i = 0; i < 4; ++i) memory[i * Form::kTeamThreads + tid] = i < 2 ? top[i] : total[i - 2];
#pragma unroll
    for (uint i = 0; i < max_dim / 2; ++i) memory[(4 + i) * Form::kTeamThreads + tid] = values[i / 4][i % 4];
  }
  void join(const float* memory, uint tid) {
    float own_part[2], other_part[2];
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const float other = memory[second * Form::kTeamThreads + tid];
      const float higher = max(top[second], other);
      const float base = higher == -INFINITY ? 0.0f : higher;
      own_part[second] = exp2_fast(top[second] - base);
      other_part[second] = exp2_fast(other - base);
      top[second] = higher;
      total[second] = total[second] * own_part[second] +
                      memory[(2 + second) * Form::kTeamThreads + tid] * other_part[second];
    }
#pragma unroll
    for (uint i = 0; i < max_dim / 2; ++i) {
      float& value = values[i / 4][i % 4];
      value =
          value * own_part[i % 4 / 2] + memory[(4 + i) * Form::kTeamThreads + tid] * other_part[i % 4 / 2];
    }
  }

  // values = results. Returns whether they are all finite, and no row has only scores of -inf.
  bool normalize(const float* sinks) {
    bool finite = true;
    float zeros = 0.0f;
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const uint row = first_row + second * 8 + g;
      const bool exists = row < own.count;
      const float sink = sinks != nullptr && exists ? sinks[own.head(row)] : -INFINITY;
      const float sum = total[second] / Units::kWeight;
      finite = finite && (sum > 0.0f || !exists || mask.begin(query(second)) >= mask.end(query(second)));
      const float factor = normalizer(top[second] / kLog2E, sum, sink) / Units::kWeight;
#pragma unroll
      for (uint i = 0; i < max_dim / 4; ++i) {
        float& value = values[i / 2][second * 2 + i % 2];
        value *= factor;
        zeros = fma(value, 0.0f, zeros);
      }
    }
    return finite && zeros == 0.0f;
  }

  void store(float* y, uint dim) const {
#pragma unroll
    for (uint second = 0; second < 2; ++second) {
      const uint row = first_row + second * 8 + g;
      if (row >= own.count) continue;
      float* to = y + own.place(row) * dim + t * 2;
#pragma unroll
      for (uint n = 0; n < max_dim / 8; ++n) {
        if (n * 8 >= dim) continue;
        to[n * 8] = values[n][second * 2];
        to[n * 8 + 1] = values[n][second * 2 + 1];
      }
    }
  }
};

// The rows of q as high terms, then low ones; factors[row] is what a row was multiplied with.
template <typename Form, uint max_dim, typename T>
inline void stage_queries(
    const float* q,
    TileRows own,
    uint dim,
    T* queries,
    float* factors,
    uint lane,
    uint simd) {
  for (uint row = simd; row < Form::kRows; row += Form::kThreads / 32) {
    float x[8] = {}, largest = 0.0f;
    if (row < own.count && lane * 8 < dim) {
#pragma unroll
      for (uint i = 0; i < 8; ++i) {
        x[i] = q[own.place(row) * dim + lane * 8 + i];
        largest = max(largest, abs(x[i]));
      }
    }
    const float factor = MatrixUnits<T>::range_factor(simd_max(largest));
    if (lane == 0) factors[row] = factor;
    if (lane * 8 >= max_dim) continue;
    PairTerms pairs[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) pairs[i] = terms_of<T>(x[i * 2] * factor, x[i * 2 + 1] * factor);
    T* to = queries + SharedRows<max_dim>::place(row, lane);
    *reinterpret_cast<uint4*>(to) = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    *reinterpret_cast<uint4*>(to + Form::kTerm) =
        uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
  }
}

// attend_tiles for all rows, with its memory at `place`. Apart, so that it takes no registers from what is usual. Only one
// team is left by then: barriers wait for those threads that have not ended.
template <typename Form, typename T, uint max_dim, uint rows, typename Source>
__noinline__ void attend_again(
    const float* q,
    const Source& k,
    const Source& v,
    TileRows own,
    Mask mask,
    float scale,
    float softcap,
    const float* sinks,
    float* y,
    float* place,
    uint tid,
    uint lane,
    uint simd) {
  static_assert(kTileFloats * 4 + kSimdgroups <= Form::kBytes, "the memory of the form has room for it");
  const TileMemory memory = {reinterpret_cast<float4*>(place), reinterpret_cast<bool*>(place + kTileFloats)};
  const uint end = own.first + own.count;
  for (; own.first < end; own.first += rows) {
    own.count = min(rows, end - own.first);
    attend_tiles<T, max_dim, rows>(
        HeadQueries{q, k.dim}, k, v, own, mask, k.dim, k.dim, scale, softcap, sinks, y, memory, tid, lane,
        simd);
    ::__syncthreads();
  }
}
