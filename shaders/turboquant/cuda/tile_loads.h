// The rows of a tile of a compressed cache, on their way to shared memory and there.
#pragma once

#include "coded_rows.h"

// Codes of the keys or of the values of a tile, in rows of kWords.
template <typename Form, uint max_dim, typename Table, uint bits>
struct TileCodes {
  static constexpr uint kWords = row_words(max_dim, bits);
  static constexpr uint kVectors = kWords / 4;  // of a row, where rows are wide

  static bool is_wide(const TurboSource& source) {
    return kWords % 4 == 0 && source.dim == max_dim && reinterpret_cast<ulong>(source.packed) % 16 == 0;
  }

  // Asks for the rows of the keys from `first` on; those from `end` on are the last one.
  static void ask(const TurboSource& source, bool wide, uint first, uint end, uint* codes, uint tid) {
    if (kWords % 4 == 0 && wide) {
#pragma unroll
      for (uint i = tid; i < Form::kKeys * kVectors; i += Form::kTeamThreads) {
        const ulong row = source.ring.row(min(first + i / kVectors, end - 1));
        copy_16_bytes(codes + i * 4, source.packed + row * kWords + i % kVectors * 4, 16);
      }
    } else {
      const uint words = row_words(source.dim, bits);
      for (uint key = tid / 32; key < Form::kKeys; key += Form::kTeamThreads / 32) {
        const ulong row = source.ring.row(min(first + key, end - 1));
        for (uint i = tid % 32; i < words; i += 32)
          copy_4_bytes(codes + key * kWords + i, source.packed + row * words + i);
      }
    }
  }

  // Makes rows of centroids. Columns after the last of the cache are any of them.
  static void unpack(const uint* codes, Table table, half* rows, uint tid) {
    constexpr uint kParts = max_dim / 8;
#pragma unroll 8
    for (uint i = tid; i < Form::kKeys * kParts; i += Form::kTeamThreads) {
      const uint key = i / kParts, part = i % kParts;
      Codes<bits, 8> own;
      own.template load<true>(codes + key * kWords, part * 8, max_dim);
      *reinterpret_cast<uint4*>(rows + SharedRows<max_dim>::place(key, part)) = uint4{
          own.neighbours(table, 0), own.neighbours(table, 2), own.neighbours(table, 4),
          own.neighbours(table, 6)};
    }
  }
};

// The scales and means of a thread's key of a tile.
struct KeyFactors {
  half key_scale, value_scale, key_mean, value_mean;

  void load(const TurboSource& k, const TurboSource& v, uint key) {
    const uint row = k.ring.row(key);
    key_scale = k.scales[row];
    value_scale = v.scales[row];
    if (!bool(has_means)) return;
    key_mean = k.means[row];
    value_mean = v.means[row];
  }
  void store(float2& scale, float2& mean) const {
    scale = float2{float(key_scale), float(value_scale)};
    if (bool(has_means)) mean = float2{float(key_mean), float(value_mean)};
  }
};

// The factor for an exact row of which this is the largest magnitude: a power of two that makes it large for a half, so that
// the terms of small values have all their bits.
inline float row_factor(float largest) {
  constexpr float kLarge = 16384.0f;
  return min(MatrixUnits<half>::range_factor(largest), 0x1p112f) * kLarge;
}

// Exact rows of the `count` keys from `first` on as terms: the high ones, then as many rows of low ones. Those from `end` on
// are the last one. A row's scale is at scales[2 * row].
template <typename Form, uint max_dim, uint count>
inline void load_exact(
    const TurboSource& source,
    uint first,
    uint end,
    half* rows,
    float* scales,
    uint lane,
    uint warp) {
#pragma unroll 2
  for (uint row = warp; row < count; row += Form::kTeamThreads / 32) {
    const uint key = min(first + row, end - 1);
    float4 x[2] = {float4(0.0f), float4(0.0f)};
    if (lane * 8 < source.dim) {
      x[0] = source.exact_four(key, lane * 8);
      x[1] = source.exact_four(key, lane * 8 + 4);
    }
    const float factor = row_factor(simd_max(max(largest_of(x[0]), largest_of(x[1]))));
    if (lane == 0) scales[row * 2] = reciprocal_of_power(factor);
    if (lane * 8 >= max_dim) continue;
    PairTerms pairs[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i)
      pairs[i] = terms_of<half>(x[i / 2][i % 2 * 2] * factor, x[i / 2][i % 2 * 2 + 1] * factor);
    half* to = rows + SharedRows<max_dim>::place(row, lane);
    *reinterpret_cast<uint4*>(to) = uint4{pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    *reinterpret_cast<uint4*>(to + count * max_dim) =
        uint4{pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
  }
}

// offsets[row] = q . ones of a row, zero where there is none.
template <typename Form>
inline void stage_offsets(
    const float* q,
    TileRows own,
    const float* ones,
    uint dim,
    float* offsets,
    uint lane,
    uint simd) {
  for (uint row = simd; row < Form::kRows; row += Form::kThreads / 32) {
    float sum = 0.0f;
    for (uint i = lane; row < own.count && i < dim; i += 32)
      sum = fma(q[own.place(row) * dim + i], ones[i], sum);
    sum = simd_sum(sum);
    if (lane == 0) offsets[row] = sum;
  }
}
