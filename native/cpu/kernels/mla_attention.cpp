// Latent attention: shaders/mla states what each kernel computes.
#include "cpu/kernels/attention_rows.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kMaxRope = 64;
constexpr uint32_t kFewestKeys = 64;   // of a block, except the last one that has any
constexpr double kProductTime = 0.04;  // nanoseconds of one product
constexpr double kStoreTime = 0.15;    // nanoseconds of one value of a cache row
constexpr double kCopyTime = 0.1;      // nanoseconds of one value that is copied

// A launch of mla_partials or mla_attention: all heads read one row of the cache for each key.
struct Latent {
  const float *q, *q_rope;
  Cache latents, rope_keys;
  Mask mask;
  uint32_t heads;
};

// Rows at work, and the part of their queries that turns.
struct LatentRows {
  AttentionRows rows;
  float q_rope[kQueryRows][kMaxRope];
};

// The rows from (query, head) pair `first` on over `keys`.
template <typename T, typename Seen>
LatentRows& attend_latents(const Latent& a, uint64_t first, uint32_t count, KeyRange keys, const Seen& seen) {
  LatentRows& w = *static_cast<LatentRows*>(item_scratch(sizeof(LatentRows)));
  const uint32_t rank = a.latents.dim, rope = a.rope_keys.dim;
  for (uint32_t r = 0; r < count; ++r) {
    copy_row(w.rows.queries[r], a.q + (first + r) * rank, rank);
    copy_row(w.q_rope[r], a.q_rope + (first + r) * rope, rope);
  }
  const auto add_rope = [&](KeyRange tile) {
    load_keys<T>(a.rope_keys, KeyTile(a.rope_keys, 0, tile), 0, w.rows.chunk);
    multiply_rows_of(w.rows.chunk, rope, w.q_rope[0], kMaxRope, count, w.rows.scores);
  };
  attend<T>(a.latents, 0, count, keys, seen, w.rows, add_rope);
  return w;
}

// A launch whose sizes tokens, context, capacity, heads, rank, rope start at [[buffer(sizes)]].
Latent latent_of(const FastLaunch& launch, uint32_t sizes, float scale) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(sizes + i); };
  const uint32_t tokens = value(0), context = value(1), capacity = value(2);
  return {launch.buffer<float>(0),
          launch.buffer<float>(1),
          {launch.buffer<void>(2), launch.buffer<void>(2), capacity, 1, value(4), scale, 0},
          {launch.buffer<void>(3), launch.buffer<void>(3), capacity, 1, value(5), scale, 0},
          {int64_t(context) - tokens, context, 0, true},
          value(3)};
}

template <typename T>
void run_partials(const FastLaunch& launch) {
  const Latent a = latent_of(launch, 7, launch.value<float>(14));
  float *o = launch.buffer<float>(4), *m = launch.buffer<float>(5), *l = launch.buffer<float>(6);
  const uint32_t tokens = launch.value<uint32_t>(7), blocks = launch.value<uint32_t>(13);
  const uint32_t tiles = (a.heads + kQueryRows - 1) / kQueryRows, rank = a.latents.dim;
  const double each = 2.0 * (a.mask.context / blocks + 1) * kQueryRows * rank * kProductTime;
  launch.batch.add(uint64_t(tokens) * blocks * tiles, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item / tiles / blocks), block = uint32_t(item / tiles % blocks);
      const uint32_t head = uint32_t(item % tiles) * kQueryRows, count = least(kQueryRows, a.heads - head);
      const KeyRange keys = block_of({0, a.mask.end(token)}, block, blocks, kFewestKeys);
      const uint64_t row = uint64_t(token) * a.heads + head;
      const LatentRows& w = attend_latents<T>(a, row, count, keys, [&](uint32_t) { return keys; });
      for (uint32_t r = 0; r < count; ++r) {
        const uint64_t target = (row + r) * blocks + block;
        w.rows.copy_sums(r, rank, o + target * rank);
        m[target] = w.rows.top[r];
        l[target] = w.rows.total[r];
      }
    }
  });
}

template <typename T>
void run_attention(const FastLaunch& launch) {
  const Latent a = latent_of(launch, 5, launch.value<float>(11));
  float* y = launch.buffer<float>(4);
  const uint32_t rows = launch.value<uint32_t>(5) * a.heads, rank = a.latents.dim;
  const double each = 2.0 * kQueryRows * a.mask.context * rank * kProductTime;
  launch.batch.add((rows + kQueryRows - 1) / kQueryRows, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item) * kQueryRows, count = least(kQueryRows, rows - first);
      const auto seen = [&](uint32_t r) { return KeyRange{0, a.mask.end((first + r) / a.heads)}; };
      LatentRows& w = attend_latents<T>(a, first, count, seen(count - 1), seen);
      for (uint32_t r = 0; r < count; ++r) {
        scale_sums(w.rows, r, rank, normalizer(w.rows.top[r], w.rows.total[r], kNoScore));
        w.rows.copy_sums(r, rank, y + uint64_t(first + r) * rank);
      }
    }
  });
}

template <typename T>
void run_append(const FastLaunch& launch) {
  const uint32_t widths[2] = {launch.value<uint32_t>(6), launch.value<uint32_t>(7)};
  const uint64_t position = launch.value<uint32_t>(8);
  const double each = (widths[0] + widths[1]) * kStoreTime;
  launch.batch.add(launch.value<uint32_t>(4), each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t)
      for (uint32_t part = 0; part < 2; ++part) {
        const float* from = launch.buffer<float>(part) + t * widths[part];
        T* to = launch.buffer<T>(2 + part) + (position + t) * widths[part];
        for_vectors(widths[part], [&](uint32_t i, uint32_t count) {
          store_some(to + i, load_some(from + i, count), count);
        });
      }
  });
}

}  // namespace

void mla_partials(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_partials, launch); }
void mla_attention(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_attention, launch); }
void mla_append(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_append, launch); }

void mla_split(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t heads = value(7), nope = value(8), rope = value(9), rank = value(10);
  const double each = (double(heads) * (nope + rope) + rank + rope) * kCopyTime;
  launch.batch.add(value(6), each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      for (uint64_t row = t * heads; row < (t + 1) * heads; ++row) {
        const float* head = launch.buffer<float>(0) + row * (nope + rope);
        copy_row(launch.buffer<float>(2) + row * nope, head, nope);
        copy_row(launch.buffer<float>(3) + row * rope, head + nope, rope);
      }
      const float* kv = launch.buffer<float>(1) + t * (rank + rope);
      copy_row(launch.buffer<float>(4) + t * rank, kv, rank);
      copy_row(launch.buffer<float>(5) + t * rope, kv + rank, rope);
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
