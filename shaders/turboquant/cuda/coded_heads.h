// Query heads over compressed keys, by one warp, on NVIDIA's matrix units. Each warp has keys of its own, 16 at a time, which
// it unpacks straight into operands. Scores are the product of queries, whose 16 rows are the high and the low terms of
// eight query heads, with keys; a lane's scores become its weights of values, whose 16 rows are columns of the cache.
#pragma once

#include "block_memory.h"

// Eight query heads as one warp sees them. Lane (g, t) has the scores of head g with keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9
// of 16; the sums of heads 2 t and 2 t + 1 at columns g * kColumns and on; and parts of rows: of keys g and g + 8 runs of
// columns, of values of its keys those columns.
template <uint max_dim>
struct CodedHeads {
  using Units = MatrixUnits<half>;
  using Memory = BlockMemory<max_dim>;
  static constexpr uint kColumns = Memory::kColumns, kSteps = max_dim / 16;
  static constexpr uint kRun = max_dim / 4 < 32 ? max_dim / 4 : 32, kRuns = max_dim / 4 / kRun;
  static constexpr uint kFours =
      (max_dim + 127) / 128;  // of columns of a lane that shares a row with all others
  static constexpr float kWeight = Units::kWeight;

  const TurboCache& cache;
  Memory memory;
  uint to, count, lane, g, t;
  KeyTable key_table;
  ValueTable value_table;

  float inverse;  // of the factor of the staged queries
  float offset;   // query . ones, added to a score by a mean of 1
  float top;      // the largest score
  float total;    // the sum of weights of the lane's keys
  float mean;     // the same with the means of values
  float unit;     // the sums are those of weights * kWeight / unit, a power of two
  float sums[kColumns / 2][4];

  Codes<kKeyBits, kRun> keys[2][kRuns];
  // Values of the lane's keys, and what the keys and values are multiplied with.
  struct CodedValues {
    Codes<kValueBits, kColumns> codes[4];
    half key_scales[4], value_scales[4], key_means[4], value_means[4];
  };
  CodedValues coming;

  // What the lane's keys are multiplied with.
  struct Factors {
    float key[4], value[4], key_mean[4], value_mean[4];
  };

  // The first of the four columns of a lane in a step.
  static uint column_of(uint step, uint t) {
    return (step / (kRun / 4) * 4 + t) * kRun + step % (kRun / 4) * 4;
  }
  uint key_of(uint first, uint e) const { return first + e / 2 * 8 + t * 2 + e % 2; }

  // Fills the tables, and makes operands of q [count, dim], a head for each warp.
  template <typename T>
  void stage(const T* q, uint simd) {
    float *factors = memory.tops(), *offsets = memory.totals();
    float4 x[kFours];
    float largest = 0.0f, sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < kFours; ++i) {
      const uint column = (i * 32 + lane) * 4;
      x[i] = float4(0.0f);
      if (simd >= count || column >= cache.dim) continue;
      x[i] = float4(*reinterpret_cast<const vec<T, 4>*>(q + simd * cache.dim + column));
      largest = max(largest, largest_of(x[i]));
      if (bool(has_means)) sum += dot(x[i], *reinterpret_cast<const float4*>(cache.ones + column));
    }
    KeyTable::fill(memory.key_table(), simd * 32 + lane, kBlockThreads);
    if (kKeyBits != kValueBits) ValueTable::fill(memory.value_table(), simd * 32 + lane, kBlockThreads);
    const float factor = Units::range_factor(simd_max(largest));
    sum = simd_sum(sum);
    if (lane == 0) {
      factors[simd] = factor;
      offsets[simd] = sum;
    }
#pragma unroll
    for (uint i = 0; i < kFours; ++i) {
      const uint column = (i * 32 + lane) * 4, run = column / kRun;
      if (column >= max_dim) continue;
      const PairTerms first = terms_of<half>(x[i].x * factor, x[i].y * factor);
      const PairTerms second = terms_of<half>(x[i].z * factor, x[i].w * factor);
      const uint step = run / 4 * (kRun / 4) + column % kRun / 4;
      memory.queries()[step * 32 + simd * 4 + run % 4] =
          uint4{first.high, first.low, second.high, second.low};
    }
    ::__syncthreads();
    inverse = reciprocal_of_power(factors[g]);
    offset = offsets[g];
  }

  // Asks for keys `first` and up to 15 more.
  template <bool wide>
  void load_keys(uint first) {
#pragma unroll
    for (uint j = 0; j < 2; ++j) {
      const ulong row = cache.ring.row(min(first + j * 8 + g, to - 1));
      const uint* codes = cache.keys.packed + row * row_words(cache.dim, kKeyBits);
#pragma unroll
      for (uint r = 0; r < kRuns; ++r) keys[j][r].template load<wide>(codes, (r * 4 + t) * kRun, cache.dim);
    }
  }

  template <bool wide>
  void load_values(uint first) {
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      const ulong row = cache.ring.row(min(key_of(first, e), to - 1));
      coming.codes[e].template load<wide>(
          cache.values.packed + row * row_words(cache.dim, kValueBits), g * kColumns, cache.dim);
      coming.key_scales[e] = cache.keys.scales[row];
      coming.value_scales[e] = cache.values.scales[row];
      if (bool(has_means)) {
        coming.key_means[e] = cache.keys.means[row];
        coming.value_means[e] = cache.values.means[row];
      }
    }
  }

  template <bool wide>
  void load(uint first) {
    load_keys<wide>(first);
    load_values<wide>(first);
  }

  // Adds compressed keys, which were asked for, and asks for those from `next` on, if these exist.
  template <bool wide>
  void add_codes(uint first, uint next) {
    float products[2][2][4] = {};  // of even and of odd steps, so that more are in flight
#pragma unroll
    for (uint s = 0; s < kSteps; ++s) {
      const uint4 query = memory.queries()[s * 32 + lane];
      const uint run = s / (kRun / 4), i = s % (kRun / 4) * 4;
#pragma unroll
      for (uint j = 0; j < 2; ++j)
        Units::multiply(
            products[j][s % 2], query, keys[j][run].neighbours(key_table, i),
            keys[j][run].neighbours(key_table, i + 2));
    }
    const CodedValues now = coming;
    if (next < to) load<wide>(next);
    float scores[4];
    Factors factors = {};
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      const float(&part)[2][4] = products[e / 2];
      scores[e] = sum_of_terms(part[0][e % 2] + part[1][e % 2], part[0][2 + e % 2] + part[1][2 + e % 2]);
      factors.key[e] = float(now.key_scales[e]);
      factors.value[e] = float(now.value_scales[e]);
      if (!bool(has_means)) continue;
      factors.key_mean[e] = float(now.key_means[e]);
      factors.value_mean[e] = float(now.value_means[e]);
    }
    weigh(first, scores, factors);
    const PairTerms weights[2] = {finite_terms(scores[0], scores[1]), finite_terms(scores[2], scores[3])};
#pragma unroll
    for (uint i = 0; i < kColumns; i += 2)
      add_values(
          i / 2,
          uint4{
              now.codes[0].of_both(value_table, now.codes[1], i),
              now.codes[0].of_both(value_table, now.codes[1], i + 1),
              now.codes[2].of_both(value_table, now.codes[3], i),
              now.codes[2].of_both(value_table, now.codes[3], i + 1)},
          weights);
  }

  // Adds keys whose rows are halves.
  void add_recent(uint first) {
    const auto row_of = [&](const TurboHead& head, uint key) {
      return head.recent + ulong(min(key, to - 1) % cache.recent) * cache.dim;
    };
    float products[2][4] = {};
#pragma unroll
    for (uint j = 0; j < 2; ++j) {
      const half* row = row_of(cache.keys, first + j * 8 + g);
#pragma unroll
      for (uint s = 0; s < kSteps; ++s) {
        const uint column = column_of(s, t);
        const uint2 pairs = column < cache.dim ? *reinterpret_cast<const uint2*>(row + column) : uint2(0);
        Units::multiply(products[j], memory.queries()[s * 32 + lane], pairs.x, pairs.y);
      }
    }
    float scores[4];
#pragma unroll
    for (uint e = 0; e < 4; ++e) scores[e] = sum_of_terms(products[e / 2][e % 2], products[e / 2][2 + e % 2]);
    weigh(first, scores, {{1.0f, 1.0f, 1.0f, 1.0f}, {1.0f, 1.0f, 1.0f, 1.0f}});
    const PairTerms weights[2] = {finite_terms(scores[0], scores[1]), finite_terms(scores[2], scores[3])};
#pragma unroll
    for (uint i = 0; i < kColumns; i += 4) {
      uint2 pairs[4];
#pragma unroll
      for (uint e = 0; e < 4; ++e) {
        const half* row = row_of(cache.values, key_of(first, e));
        const uint column = g * kColumns + i;
        pairs[e] = column < cache.dim ? *reinterpret_cast<const uint2*>(row + column) : uint2(0);
      }
#pragma unroll
      for (uint c = 0; c < 2; ++c)
        add_values(
            i / 2 + c,
            uint4{
                ::__byte_perm(pairs[0][c], pairs[1][c], 0x5410),
                ::__byte_perm(pairs[0][c], pairs[1][c], 0x7632),
                ::__byte_perm(pairs[2][c], pairs[3][c], 0x5410),
                ::__byte_perm(pairs[2][c], pairs[3][c], 0x7632)},
            weights);
    }
  }

  // Adds one key of the chunk itself, whose row are floats, without the units.
  template <typename T>
  void add_own(uint key, const T* q) {
    const ulong row = ulong(key - cache.context) * cache.own_stride;
    float dots[kUnitHeads] = {};
#pragma unroll
    for (uint i = 0; i < kFours; ++i) {
      const uint column = (i * 32 + lane) * 4;
      if (column >= cache.dim) continue;
      const float4 x = *reinterpret_cast<const float4*>(cache.keys.own + row + column);
#pragma unroll
      for (uint h = 0; h < kUnitHeads; ++h)
        if (h < count)
          dots[h] += dot(x, float4(*reinterpret_cast<const vec<T, 4>*>(q + h * cache.dim + column)));
    }
    const float own = simd_shuffle(sums_by_lane<kUnitHeads>(dots, lane), ushort(g));
    float scores[4] = {own * reciprocal_of_power(inverse)};
    weigh(key, scores, {{1.0f, 1.0f, 1.0f, 1.0f}, {1.0f, 1.0f, 1.0f, 1.0f}});
    const float weights[2] = {
        simd_shuffle(scores[0], ushort(t * 8)), simd_shuffle(scores[0], ushort(t * 8 + 4))};
#pragma unroll
    for (uint i = 0; i < kColumns; i += 4) {
      const uint column = g * kColumns + i;
      if (column >= cache.dim) continue;
      const float4 x = *reinterpret_cast<const float4*>(cache.values.own + row + column);
#pragma unroll
      for (uint e = 0; e < 8; ++e) {
        float& sum = sums[i / 2 + e / 4][e % 4];
        sum = fma(weights[e % 2], x[e / 4 * 2 + e % 4 / 2], sum);
      }
    }
  }

  // sums[i] += the lane's part of 16 columns of values times weights.
  void add_values(uint i, uint4 columns, const PairTerms (&weights)[2]) {
    Units::multiply(sums[i], columns, weights[0].high, weights[1].high);
    Units::multiply(sums[i], columns, weights[0].low, weights[1].low);
  }

  // Products with the lane's keys become weights of its values. Earlier sums become relative to the new top.
  void weigh(uint first, float (&scores)[4], const Factors& factors) {
    float higher = top;
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      float score = scores[e] * inverse * factors.key[e];
      if (bool(has_means)) score = fma(factors.key_mean[e], offset, score);
      scores[e] = cache.scale * score;
    }
    if (cache.softcap > 0.0f) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) scores[e] = soft_cap(scores[e], cache.softcap);
    }
#pragma unroll
    for (uint e = 0; e < 4; ++e)
      if (key_of(first, e) < to) higher = max(higher, scores[e]);
    higher = max(higher, simd_shuffle_xor(higher, 1));
    higher = max(higher, simd_shuffle_xor(higher, 2));
    const float kept = softmax_weight(top, higher);
    top = higher;
    total *= kept;
    if (bool(has_means)) mean *= kept;
    float largest = unit * kept;
#pragma unroll
    for (uint e = 0; e < 4; ++e) {
      const bool seen = key_of(first, e) < to;
      const float weight = seen ? softmax_weight(scores[e], higher) : 0.0f;
      total += weight;
      if (bool(has_means) && seen) mean = fma(weight, factors.value_mean[e], mean);
      scores[e] = seen ? weight * factors.value[e] : 0.0f;
      if (scores[e] < INFINITY) largest = max(largest, scores[e]);
    }
    largest = max(largest, simd_shuffle_xor(largest, 1));
    largest = max(largest, simd_shuffle_xor(largest, 2));
    const float next = power_above(largest), reciprocal = reciprocal_of_power(next);
    const float change = kept * unit * reciprocal;
    unit = next;
#pragma unroll
    for (uint e = 0; e < 4; ++e) scores[e] *= reciprocal * kWeight;
    if (!simd_any(change != 1.0f)) return;
    const float changes[2] = {simd_shuffle(change, ushort(t * 8)), simd_shuffle(change, ushort(t * 8 + 4))};
#pragma unroll
    for (uint i = 0; i < kColumns / 2; ++i) {
#pragma unroll
      for (uint e = 0; e < 4; ++e) sums[i][e] *= changes[e % 2];
    }
  }

  // Joins the warps: first their largest scores and sums of weights, then their values, half of the warps at a time.
  void join(BlockSums results, uint simd) {
    float *tops = memory.tops(), *totals = memory.totals(), *means = memory.means();
#pragma unroll
    for (ushort stride = 1; stride < 4; stride *= 2) {
      total += simd_shuffle_xor(total, stride);
      if (bool(has_means)) mean += simd_shuffle_xor(mean, stride);
    }
    ::__syncthreads();  // no warp needs queries and tables any more
    if (t == 0) {
      tops[simd * kUnitHeads + g] = top;
      totals[simd * kUnitHeads + g] = total;
      if (bool(has_means)) means[simd * kUnitHeads + g] = mean;
    }
    ::__syncthreads();
    float highest = -INFINITY, all = 0.0f, all_means = 0.0f;
#pragma unroll
    for (uint w = 0; w < kOnlineSimdgroups; ++w)
      if (totals[w * kUnitHeads + g] != 0.0f) highest = max(highest, tops[w * kUnitHeads + g]);
#pragma unroll
    for (uint w = 0; w < kOnlineSimdgroups; ++w) {
      if (totals[w * kUnitHeads + g] == 0.0f) continue;
      const float weight = softmax_weight(tops[w * kUnitHeads + g], highest);
      all = fma(weight, totals[w * kUnitHeads + g], all);
      if (bool(has_means)) all_means = fma(weight, means[w * kUnitHeads + g], all_means);
    }
    const float factor = total != 0.0f ? softmax_weight(top, highest) * unit / kWeight : 0.0f;
    const float factors[2] = {simd_shuffle(factor, ushort(t * 8)), simd_shuffle(factor, ushort(t * 8 + 4))};
#pragma unroll
    for (uint turn = 0; turn < 2; ++turn) {
      if (simd / Memory::kCopies == turn) {
#pragma unroll
        for (uint h = 0; h < 2; ++h) {
          float* place = memory.sums(simd) + (t * 2 + h) * Memory::kHead + g * Memory::kLane;
#pragma unroll
          for (uint i = 0; i < kColumns / 2; ++i) {
            float2& sum = *reinterpret_cast<float2*>(place + i * 2);
            // A warp without keys adds nothing; its sums are zeros.
            const float2 own = float2{sums[i][h], sums[i][2 + h]} * factors[h];
            sum = turn == 0 ? own : sum + own;
          }
        }
      }
      ::__syncthreads();
    }
    if (bool(has_means)) {
      if (simd == 0 && t == 0) means[g] = all_means;
      ::__syncthreads();
    }
    for (uint h = 0; h < count; ++h) {
      for (uint i = simd * 32 + lane; i < cache.dim; i += kBlockThreads) {
        float value = 0.0f;
#pragma unroll
        for (uint copy = 0; copy < Memory::kCopies; ++copy)
          value += memory.sums(copy)[h * Memory::kHead + i / kColumns * Memory::kLane + i % kColumns];
        if (bool(has_means)) value = fma(means[h], cache.ones[i], value);
        results.o[ulong(h) * results.blocks * cache.dim + i] = value;
      }
    }
    if (simd == 0 && t == 0 && g < count) {
      results.m[ulong(g) * results.blocks] = highest;
      results.l[ulong(g) * results.blocks] = all;
    }
  }
};
