// Attention of one simdgroup over keys of a compressed cache: the query heads that share a key head unpack
// each row once. Everything is rotated: queries, keys, values and results.
#pragma once

#include "../attention/attention.h"
#include "../attention/share.h"
#include "codec.h"

constant uint key_bits [[function_constant(0)]];
constant uint value_bits [[function_constant(1)]];
constant bool has_means [[function_constant(2)]];
constant bool has_own [[function_constant(3)]];
constant bool has_recent [[function_constant(5)]];

// The lane's share of a row, in units of its scale.
template <uint max_dim>
inline Share<max_dim> load_centroids(device const uint* row, uint bits, uint dim, uint lane) {
  constexpr uint kRun = Share<max_dim>::kRun;
  constant float* table = centroids(bits);
  Share<max_dim> share;
  for (uint i = 0; i < Share<max_dim>::kValues; i += kRun) {
    const uint column = (i / kRun * 32 + lane) * kRun;
    const uint run = column < dim ? code_run(row, column, kRun, bits) : 0;
    for (uint c = 0; c < kRun; ++c) share.values[i + c] = column < dim ? table[code_at(run, c, bits)] : 0.0f;
  }
  return share;
}

// The rows of one key head, of its keys or of its values.
struct TurboHead {
  device const uint* packed;  // [capacity, words]
  device const half* scales;  // [capacity]
  device const half* means;   // [capacity], with has_means
  device const float* own;    // row i at i * own_stride, with has_own
  device const half* recent;  // [recent, dim], with has_recent
};

// The rows from `first_row` of all on, own rows from element `own_row` on, recent ones from `recent_row` on.
inline TurboHead turbo_head(
    device const uint* packed,
    device const half* scales,
    device const half* means,
    device const float* own,
    device const half* recent,
    ulong first_row,
    uint words,
    ulong own_row,
    ulong recent_row) {
  return TurboHead{
      packed + first_row * words, scales + first_row, has_means ? means + first_row : nullptr,
      has_own ? own + own_row : nullptr, has_recent ? recent + recent_row : nullptr};
}

// The cache of a key head of a sequence. Key j < exact is in row (ring_start + j) % capacity of keys and of
// values, later ones before `context` are in row j % recent of the exact rows; with has_own the keys from
// `context` on are rows of a chunk that is not encoded yet.
struct TurboCache {
  TurboHead keys;
  TurboHead values;
  device const float* ones;  // the rotated vector of ones, with has_means
  ulong own_stride;
  uint context;
  uint exact;  // at most context
  uint recent;
  uint capacity;
  uint ring_start;
  uint dim;
  float scale;
  float softcap;
};

// One vector of a cache: values * factor + mean * ones.
template <uint max_dim>
struct TurboVector {
  Share<max_dim> values;
  float factor;
  float mean;
};

template <uint max_dim>
inline TurboVector<max_dim> load_vector(
    thread const TurboCache& cache,
    thread const TurboHead& head,
    uint bits,
    uint key,
    uint lane) {
  TurboVector<max_dim> vector;
  vector.mean = 0.0f;
  vector.factor = 1.0f;
  if (has_own && key >= cache.context) {
    vector.values.load(head.own + (key - cache.context) * cache.own_stride, cache.dim, lane);
    return vector;
  }
  if (has_recent && key >= cache.exact) {
    vector.values.load(head.recent + ulong(key % cache.recent) * cache.dim, cache.dim, lane);
    return vector;
  }
  const uint row = ring_row(cache.ring_start, key, cache.capacity);
  vector.values =
      load_centroids<max_dim>(head.packed + ulong(row) * row_words(cache.dim, bits), bits, cache.dim, lane);
  vector.factor = float(head.scales[row]);
  if (has_means) vector.mean = float(head.means[row]);
  return vector;
}

// The online softmax of `count` <= shared query heads.
template <uint max_dim, uint shared>
struct Attending {
  Share<max_dim> query[shared];
  Share<max_dim> sum[shared];
  float offset[shared];  // query . ones: added to a score by a mean of 1
  float mean[shared];    // sum of weighted means of values
  float top[shared];
  float total[shared];
  uint count;

  // Queries q [count, dim].
  template <typename T>
  void start(thread const TurboCache& cache, device const T* q, uint heads, uint lane) {
    count = heads;
    Share<max_dim> ones;
    if (has_means) ones.load(cache.ones, cache.dim, lane);
    for (uint h = 0; h < shared; ++h) {
      for (uint i = 0; i < Share<max_dim>::kValues; ++i) sum[h].values[i] = 0.0f;
      offset[h] = 0.0f;
      mean[h] = 0.0f;
      top[h] = -INFINITY;
      total[h] = 0.0f;
      if (h >= count) continue;
      query[h].load(q + ulong(h) * cache.dim, cache.dim, lane);
      if (has_means) offset[h] = simd_sum(dot(query[h], ones));
    }
  }

  static float dot(thread const Share<max_dim>& a, thread const Share<max_dim>& b) {
    float sum = 0.0f;
    for (uint i = 0; i < Share<max_dim>::kValues; ++i) sum = fma(a.values[i], b.values[i], sum);
    return sum;
  }

  // Keys [from, to).
  void add(thread const TurboCache& cache, uint from, uint to, uint lane) {
    float kept[shared], weight[shared];
    for (uint key = from; key < to; ++key) {
      const TurboVector<max_dim> k = load_vector<max_dim>(cache, cache.keys, key_bits, key, lane);
      for (uint h = 0; h < shared; ++h) {
        if (h >= count) continue;
        const float product = simd_sum(dot(query[h], k.values)) * k.factor;
        const float score = has_means ? fma(k.mean, offset[h], product) : product;
        const float capped = soft_cap(cache.scale * score, cache.softcap);
        const float higher = max(top[h], capped);
        kept[h] = softmax_weight(top[h], higher);
        weight[h] = softmax_weight(capped, higher);
        total[h] = fma(total[h], kept[h], weight[h]);
        top[h] = higher;
      }
      const TurboVector<max_dim> v = load_vector<max_dim>(cache, cache.values, value_bits, key, lane);
      for (uint h = 0; h < shared; ++h) {
        if (h >= count) continue;
        const float factor = weight[h] * v.factor;
        for (uint i = 0; i < Share<max_dim>::kValues; ++i)
          sum[h].values[i] = fma(sum[h].values[i], kept[h], factor * v.values.values[i]);
        if (has_means) mean[h] = fma(mean[h], kept[h], weight[h] * v.mean);
      }
    }
    if (!has_means) return;
    Share<max_dim> ones;
    ones.load(cache.ones, cache.dim, lane);
    for (uint h = 0; h < shared; ++h) {
      for (uint i = 0; i < Share<max_dim>::kValues; ++i)
        sum[h].values[i] = fma(mean[h], ones.values[i], sum[h].values[i]);
    }
  }
};
