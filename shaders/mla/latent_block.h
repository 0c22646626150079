// Latent attention of some heads of a token to a block of keys, by one threadgroup, which reads each row once. Its
// simdgroups divide the columns: each keeps its own of some rows in threadgroup memory, adds what they are to the scores
// of all heads, then makes the weights of two heads, then adds its columns of the rows to the mix of all heads.
//
// A Source has the rows latent | rope key: four(key, column) are columns [column, column + 4) as Four<T>, and kAhead says
// whether rows are asked for while those before them are multiplied.
#pragma once

#include "../attention/attention.h"
#include "../common/lane_sums.h"
#include "sizes.h"

constexpr constant uint kSimdgroups = 8;  // of a threadgroup
constexpr constant uint kThreads = 32 * kSimdgroups;
constexpr constant uint kFewestKeys = 32;  // of a block, except the last one that has any

// Lane (h, c) of a simdgroup has the heads [4 h, 4 h + 4), of the latents columns [4 c, 4 c + 4) of each 32 of the
// simdgroup, and column c of its 8 of the rotary keys.
constexpr constant uint kColumnLanes = 8;
constexpr constant uint kOwnHeads = 4;
constexpr constant uint kHeads = kOwnHeads * 32 / kColumnLanes;  // of a threadgroup
constexpr constant uint kParts = kMaxRank / (32 * kSimdgroups);  // of 32 columns, of a simdgroup
constexpr constant uint kValues = 4 * kParts;                    // of a latent in a lane
constexpr constant uint kRopeColumns = kMaxRope / kSimdgroups;   // of a simdgroup
constexpr constant uint kPair = 2;  // keys whose sums are taken together, one in each lane
static_assert(4 * kColumnLanes == 32, "the lanes have the columns of a part");
static_assert(kRopeColumns == kColumnLanes, "a lane has one column of the rotary keys");
static_assert(kPair * kOwnHeads == kColumnLanes, "a lane gets one sum");

// Fours of a row that a simdgroup keeps: those of the latent, then those of the rotary key.
constexpr constant uint kLatentFours = kParts * kColumnLanes;
constexpr constant uint kRopeFours = kRopeColumns / 4;

template <typename T>
using Four = vec<T, 4>;

// The first of a lane's four columns of a part.
inline uint column_of(uint part, uint simd, uint lane) {
  return ((part * kSimdgroups + simd) * kColumnLanes + lane % kColumnLanes) * 4;
}

// Rows that are kept at once.
template <typename T>
constexpr uint kept_keys() {
  return sizeof(T) == 4 ? 4 : 8;
}

// Sizes of LatentMemory.
template <typename T>
constexpr uint row_fours() {
  return kSimdgroups * kept_keys<T>() * (kLatentFours + kRopeFours);
}
template <typename T>
constexpr uint partial_floats() {
  return kSimdgroups * kHeads * (kept_keys<T>() + 1);
}
template <typename T>
constexpr uint weight_fours() {
  return (kept_keys<T>() + 1) * kHeads / 4;
}

template <typename T>
struct LatentMemory {
  static_assert(
      row_fours<T>() * 4 * sizeof(T) + partial_floats<T>() * 4 + weight_fours<T>() * 16 <= 16384,
      "two threadgroups share a core");

  threadgroup Four<T>* rows;    // [kSimdgroups, keys * kLatentFours + keys * kRopeFours]
  threadgroup float* partials;  // [kSimdgroups, kHeads, keys + 1], so that heads are in different banks
  threadgroup float4* weights;  // [keys + 1, kHeads / 4], the last those of the sums before
};

// What a lane brings of the next rows, on its way from memory.
template <typename T>
struct NextRows {
  enum : uint { kFours = kept_keys<T>() * kLatentFours / 32 };

  Four<T> latents[kFours];
  Four<T> rope_key;

  // Rows [first, end) and as many zeros as are missing.
  template <typename Source>
  void load(thread const Source& source, uint first, uint end, uint rank, uint rope, uint simd, uint lane) {
#pragma unroll
    for (uint i = 0; i < kFours; ++i) {
      const uint place = i * 32 + lane;
      const uint key = first + place / kLatentFours;
      const uint column = column_of(place % kLatentFours / kColumnLanes, simd, lane);
      latents[i] = Four<T>(T(0));
      if (key < end && column < rank) latents[i] = source.four(key, column);
    }
    const uint key = first + lane / kRopeFours;
    const uint column = simd * kRopeColumns + lane % kRopeFours * 4;
    rope_key = Four<T>(T(0));
    if (lane < kept_keys<T>() * kRopeFours && key < end && column < rope)
      rope_key = source.four(key, rank + column);
  }

  void store(threadgroup Four<T>* rows, uint lane) const {
#pragma unroll
    for (uint i = 0; i < kFours; ++i) rows[i * 32 + lane] = latents[i];
    if (lane < kept_keys<T>() * kRopeFours) rows[kept_keys<T>() * kLatentFours + lane] = rope_key;
  }
};

// The heads and columns of a lane.
template <typename T>
struct LatentHeads {
  enum : uint { kKeys = kept_keys<T>(), kStride = kKeys + 1 };

  float query[kOwnHeads][kValues];
  float turned[kOwnHeads];
  float sum[kOwnHeads][kValues];

  // Queries q [count, rank] and q_rope [count, rope]; others are zero.
  void load(
      device const float* q,
      device const float* q_rope,
      uint rank,
      uint rope,
      uint count,
      uint simd,
      uint lane) {
    const uint first = lane / kColumnLanes * kOwnHeads;
    const uint turning = simd * kRopeColumns + lane % kColumnLanes;
#pragma unroll
    for (uint h = 0; h < kOwnHeads; ++h) {
      const ulong head = first + h;
#pragma unroll
      for (uint p = 0; p < kParts; ++p) {
        const uint column = column_of(p, simd, lane);
        float4 x = 0.0f;
        if (head < count && column < rank) x = *(device const float4*)(q + head * rank + column);
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
          query[h][p * 4 + i] = x[i];
          sum[h][p * 4 + i] = 0.0f;
        }
      }
      turned[h] = head < count && turning < rope ? q_rope[head * rope + turning] : 0.0f;
    }
  }

  // Writes what the simdgroup's columns add to the scores of all heads and the kept keys.
  void score(threadgroup const Four<T>* rows, threadgroup float* partials, uint lane) const {
    threadgroup const T* rope_keys = (threadgroup const T*)(rows + kKeys * kLatentFours);
    const uint c = lane % kColumnLanes;
    const uint head = lane / kColumnLanes * kOwnHeads + c % kOwnHeads;
    for (uint key = 0; key < kKeys; key += kPair) {
      float dots[kPair * kOwnHeads];
#pragma unroll
      for (uint k = 0; k < kPair; ++k) {
        const float turning = float(rope_keys[(key + k) * kRopeColumns + c]);
#pragma unroll
        for (uint h = 0; h < kOwnHeads; ++h) dots[k * kOwnHeads + h] = turned[h] * turning;
#pragma unroll
        for (uint p = 0; p < kParts; ++p) {
          const float4 x = float4(rows[(key + k) * kLatentFours + p * kColumnLanes + c]);
#pragma unroll
          for (uint h = 0; h < kOwnHeads; ++h) {
            thread float& dot = dots[k * kOwnHeads + h];
#pragma unroll
            for (uint i = 0; i < 4; ++i) dot = fma(query[h][p * 4 + i], x[i], dot);
          }
        }
      }
      fold<4>(dots, lane);
      fold<2>(dots, lane);
      fold<1>(dots, lane);
      partials[head * kStride + key + c / kOwnHeads] = dots[0];
    }
  }

  // Adds the kept rows to the sums, by their weights.
  void add(threadgroup const Four<T>* rows, threadgroup const float4* weights, uint lane) {
    const uint own = lane / kColumnLanes;
    const float4 kept = weights[kKeys * kHeads / 4 + own];
#pragma unroll
    for (uint h = 0; h < kOwnHeads; ++h) {
#pragma unroll
      for (uint i = 0; i < kValues; ++i) sum[h][i] *= kept[h];
    }
    for (uint key = 0; key < kKeys; ++key) {
      const float4 weight = weights[key * kHeads / 4 + own];
#pragma unroll
      for (uint p = 0; p < kParts; ++p) {
        const float4 x = float4(rows[key * kLatentFours + p * kColumnLanes + lane % kColumnLanes]);
#pragma unroll
        for (uint h = 0; h < kOwnHeads; ++h) {
#pragma unroll
          for (uint i = 0; i < 4; ++i) sum[h][p * 4 + i] = fma(weight[h], x[i], sum[h][p * 4 + i]);
        }
      }
    }
  }

  // Writes the sums of the first `count` heads to o [count, blocks, rank].
  void store(device float* o, uint blocks, uint rank, uint count, uint simd, uint lane) const {
#pragma unroll
    for (uint h = 0; h < kOwnHeads; ++h) {
      const ulong head = lane / kColumnLanes * kOwnHeads + h;
#pragma unroll
      for (uint p = 0; p < kParts; ++p) {
        const uint column = column_of(p, simd, lane);
        if (head >= count || column >= rank) continue;
        device float* target = o + head * blocks * rank + column;
#pragma unroll
        for (uint i = 0; i < 4; ++i) target[i] = sum[h][p * 4 + i];
      }
    }
  }
};

// The online softmax of two heads, by one simdgroup: half of its lanes have a head. Of these, some neighbours have a key
// together.
template <typename T>
struct LatentWeights {
  enum : uint { kKeys = kept_keys<T>(), kShare = 16 / kKeys };  // kShare lanes have a key

  float top;    // the largest score of the lane's head
  float total;  // the sum of weights of the lane's keys; 0 in all but the first that have a key

  void start() {
    top = -INFINITY;
    total = 0.0f;
  }

  static uint head_of(uint simd, uint lane) { return simd * 2 + lane / 16; }

  // Makes weights of what all simdgroups have found for the kept keys, of which the first `seen` exist.
  void weigh(LatentMemory<T> memory, float scale, uint seen, uint simd, uint lane) {
    const uint head = head_of(simd, lane);
    const uint key = lane % 16 / kShare;
    const uint part = lane % kShare;
    float score = 0.0f;
#pragma unroll
    for (uint s = 0; s < kSimdgroups; s += kShare)
      score += memory.partials[((s + part) * kHeads + head) * (kKeys + 1) + key];
#pragma unroll
    for (uint stride = 1; stride < kShare; stride *= 2) score += simd_shuffle_xor(score, ushort(stride));
    score *= scale;
    float higher = key < seen ? score : -INFINITY;
#pragma unroll
    for (uint stride = kShare; stride < 16; stride *= 2)
      higher = max(higher, simd_shuffle_xor(higher, ushort(stride)));
    higher = max(top, higher);
    const float kept = softmax_weight(top, higher);
    const float weight = key < seen ? softmax_weight(score, higher) : 0.0f;
    total = fma(total, kept, part == 0 ? weight : 0.0f);
    top = higher;
    threadgroup float* weights = (threadgroup float*)memory.weights;
    if (part == 0) weights[key * kHeads + head] = weight;
    if (lane % 16 == 0) weights[kKeys * kHeads + head] = kept;
  }

  // Writes the numbers of the first `count` heads, to places that are `blocks` apart.
  void store(device float* m, device float* l, uint blocks, uint count, uint simd, uint lane) const {
    const ulong head = head_of(simd, lane);
    float all = total;
#pragma unroll
    for (uint stride = 1; stride < 16; stride *= 2) all += simd_shuffle_xor(all, ushort(stride));
    if (lane % 16 != 0 || head >= count) return;
    m[head * blocks] = top;
    l[head * blocks] = all;
  }
};

// What a threadgroup has: `count` heads of a token, and the keys [from, to) of a block.
struct LatentBlock {
  ulong row;     // of the first head in q
  ulong target;  // of the first head in m
  uint count;
  uint from;
  uint to;
};

// Of a token that sees the keys before `end`.
inline LatentBlock latent_block(uint3 tg, uint end, uint heads, uint blocks) {
  const uint first = tg.x * kHeads;
  const ulong row = ulong(tg.z) * heads + first;
  const uint length = max(kFewestKeys, (end + blocks - 1) / blocks);
  const uint from = uint(min(ulong(tg.y) * length, ulong(end)));
  return LatentBlock{row, row * blocks + tg.y, min(kHeads, heads - first), from, min(from + length, end)};
}

// Of the block, m is the largest score, l the sum of weights relative to it, o the weighted sum of latents.
template <typename T, typename Source>
inline void attend_latents(
    thread const Source& source,
    LatentBlock block,
    device const float* q,
    device const float* q_rope,
    device float* o,
    device float* m,
    device float* l,
    uint rank,
    uint rope,
    uint blocks,
    float scale,
    LatentMemory<T> memory,
    uint lane,
    uint simd) {
  constexpr uint kKeys = kept_keys<T>();
  threadgroup Four<T>* rows = memory.rows + simd * kKeys * (kLatentFours + kRopeFours);
  threadgroup float* partials = memory.partials + simd * kHeads * (kKeys + 1);
  NextRows<T> next;
  if (Source::kAhead) next.load(source, block.from, block.to, rank, rope, simd, lane);
  LatentHeads<T> heads;
  const uint asked = block.from < block.to ? block.count : 0;  // a block without keys needs no queries
  heads.load(q + block.row * rank, q_rope + block.row * rope, rank, rope, asked, simd, lane);
  LatentWeights<T> weights;
  weights.start();
  for (uint at = block.from; at < block.to; at += kKeys) {
    if (!Source::kAhead) next.load(source, at, block.to, rank, rope, simd, lane);
    next.store(rows, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (Source::kAhead) next.load(source, at + kKeys, block.to, rank, rope, simd, lane);
    heads.score(rows, partials, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    weights.weigh(memory, scale, block.to - at, simd, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    heads.add(rows, memory.weights, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  heads.store(o + block.target * rank, blocks, rank, block.count, simd, lane);
  weights.store(m + block.target, l + block.target, blocks, block.count, simd, lane);
}
