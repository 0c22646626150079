// Decode attention over keys of a compressed cache: the query heads that share a key head unpack each row once.
// Everything is rotated: queries, keys, values and results.
#pragma once

#include "../attention/online.h"
#include "ring.h"

constant uint key_bits [[function_constant(0)]];
constant uint value_bits [[function_constant(1)]];
constant bool has_means [[function_constant(2)]];
constant bool has_own [[function_constant(3)]];
constant bool has_recent [[function_constant(5)]];

// A lane's share of the codes of a row, still on its way from memory.
template <uint max_dim>
struct CodeShare {
  static constexpr constant uint kRun = Share<max_dim>::kRun;
  static constexpr constant uint kRuns = Share<max_dim>::kValues / kRun;

  uint runs[kRuns];

  void load(device const uint* row, uint bits, uint dim, uint lane) {
#pragma unroll
    for (uint i = 0; i < kRuns; ++i) {
      const uint column = (i * 32 + lane) * kRun;
      runs[i] = column < dim ? code_run(row, column, kRun, bits) : 0;
    }
  }

  // The centroids. Table, of codes of up to 6 bits, is a pointer into constant or threadgroup memory.
  template <typename Table>
  Share<max_dim> decode(Table table, uint bits, uint dim, uint lane) const {
    Share<max_dim> share;
#pragma unroll
    for (uint i = 0; i < Share<max_dim>::kValues; ++i) {
      const bool inside = (i / kRun * 32 + lane) * kRun < dim;
      const uint code = code_at(runs[i / kRun], i % kRun, bits);
      share.values[i] = !inside ? 0.0f : bits == 8 ? centroid_of_byte(code) : table[code];
    }
    return share;
  }
};

// The lane's share of a row, in units of its scale.
template <uint max_dim>
inline Share<max_dim> load_centroids(device const uint* row, uint bits, uint dim, uint lane) {
  CodeShare<max_dim> codes;
  codes.load(row, bits, dim, lane);
  return codes.decode(centroids(bits), bits, dim, lane);
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

// The cache of a key head of a sequence. Key j < exact is in row ring.row(j) of keys and of values, later ones before
// `context` are in row j % recent of the exact rows; with has_own the keys from `context` on are rows of a chunk
// that is not encoded yet.
struct TurboCache {
  TurboHead keys;
  TurboHead values;
  device const float* ones;  // the rotated vector of ones, with has_means
  ulong own_stride;
  uint context;
  uint exact;  // at most context
  uint recent;
  Ring ring;
  uint dim;
  float scale;
  float softcap;
};

// What the codes of a row stand for: centroid * scale + mean * ones. Exact rows have the scale 1 and the mean 0.
struct RowFactors {
  float scale;
  float mean;
};

inline RowFactors row_factors(thread const TurboCache& cache, thread const TurboHead& head, uint key) {
  if (key >= cache.exact) return RowFactors{1.0f, 0.0f};
  const uint row = cache.ring.row(key);
  return RowFactors{float(head.scales[row]), has_means ? float(head.means[row]) : 0.0f};
}

// The values of a row, in units of its scale. Of compressed rows they are `codes`.
template <uint max_dim>
inline Share<max_dim> row_values(
    thread const TurboCache& cache,
    thread const TurboHead& head,
    thread const CodeShare<max_dim>& codes,
    threadgroup const float* table,
    uint bits,
    uint key,
    uint lane) {
  if (has_own && key >= cache.context) {
    Share<max_dim> share;
    share.load(head.own + (key - cache.context) * cache.own_stride, cache.dim, lane);
    return share;
  }
  if (has_recent && key >= cache.exact) {
    Share<max_dim> share;
    share.load(head.recent + ulong(key % cache.recent) * cache.dim, cache.dim, lane);
    return share;
  }
  return codes.decode(table, bits, cache.dim, lane);
}

constexpr constant uint kTableFloats = 64;  // of the centroids of one width, at most

inline void load_table(threadgroup float* table, uint bits, uint tid) {
  if (bits == 8) return;
  constant float* values = centroids(bits);
  for (uint i = tid; i < (1u << bits); i += 32 * kOnlineSimdgroups) table[i] = values[i];
}

// Copies the centroids of keys and of values to threadgroup memory, where lanes can read different ones at once.
inline void load_tables(threadgroup float* tables, uint tid) {
  load_table(tables, key_bits, tid);
  load_table(tables + kTableFloats, value_bits, tid);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Attention of `count` <= shared query heads q [count, dim] over the keys [from, to), which the simdgroups of a
// threadgroup share.
template <uint max_dim, uint shared, typename T>
inline Online<max_dim, shared> attend(
    thread const TurboCache& cache,
    threadgroup const float* tables,
    device const T* q,
    uint count,
    uint from,
    uint to,
    uint simd,
    uint lane) {
  constexpr uint kBatch = Online<max_dim, shared>::kBatch;
  Share<max_dim> query[shared], ones;
  float offset = 0.0f;  // query . ones of the lane's head: added to a score by a mean of 1
  if (has_means) ones.load(cache.ones, cache.dim, lane);
#pragma unroll
  for (uint h = 0; h < shared; ++h) {
    query[h].load(q + ulong(min(h, count - 1)) * cache.dim, cache.dim, lane);
    const float own = has_means ? simd_sum(query[h].dot(ones)) : 0.0f;
    if (h == Online<max_dim, shared>::head_of(lane)) offset = own;
  }

  Online<max_dim, shared> online;
  online.start();
  float mean = 0.0f;  // sum of weighted means of the lane's values
  const uint key_words = row_words(cache.dim, key_bits);
  const uint value_words = row_words(cache.dim, value_bits);
  for (uint at = from + simd * kBatch; at < to; at += kOnlineSimdgroups * kBatch) {
    CodeShare<max_dim> keys[kBatch], values[kBatch];
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      const uint key = min(at + b, to - 1);
      const ulong row = key < cache.exact ? cache.ring.row(key) : 0;
      keys[b].load(cache.keys.packed + row * key_words, key_bits, cache.dim, lane);
      values[b].load(cache.values.packed + row * value_words, value_bits, cache.dim, lane);
    }
    const uint own = min(at + online.key_of(lane), to - 1);
    const RowFactors of_key = row_factors(cache, cache.keys, own);
    const RowFactors of_value = row_factors(cache, cache.values, own);

    float dots[shared * kBatch];
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      const Share<max_dim> key =
          row_values<max_dim>(cache, cache.keys, keys[b], tables, key_bits, min(at + b, to - 1), lane);
#pragma unroll
      for (uint h = 0; h < shared; ++h) dots[h * kBatch + b] = h < count ? query[h].dot(key) : 0.0f;
    }
    const float product = sums_by_lane<shared * kBatch>(dots, lane) * of_key.scale;
    const float score = has_means ? fma(of_key.mean, offset, product) : product;
    const float weight =
        online.weigh(soft_cap(cache.scale * score, cache.softcap), at + online.key_of(lane) < to);
    if (has_means) mean = fma(mean, online.kept, weight * of_value.mean);
#pragma unroll
    for (uint b = 0; b < kBatch; ++b) {
      if (at + b >= to) continue;
      const Share<max_dim> value = row_values<max_dim>(
          cache, cache.values, values[b], tables + kTableFloats, value_bits, at + b, lane);
      online.add(b, value, weight * of_value.scale, count);
    }
  }
  if (has_means) {
    const float all = online.over_keys(mean);
#pragma unroll
    for (uint h = 0; h < shared; ++h) {
      const float own = simd_shuffle(all, ushort(h * kBatch));
#pragma unroll
      for (uint i = 0; i < Share<max_dim>::kValues; ++i)
        online.sum[h].values[i] = fma(own, ones.values[i], online.sum[h].values[i]);
    }
  }
  return online;
}
