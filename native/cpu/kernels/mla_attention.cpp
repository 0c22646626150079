// Latent attention: shaders/mla specifies each kernel.
#include "arguments/mla/mla_attention.h"
#include "arguments/mla/mla_append.h"
#include "arguments/mla/mla_partials.h"
#include "arguments/mla/mla_split.h"
#include "cpu/kernels/attention_rows.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kMaxRope = arguments::mla_attention<float>::kMaxRope;
static_assert(arguments::mla_attention<float>::kMaxRank <= kMaxDim);
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

// Scratch memory of attend, and the rotary part of the queries.
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

// A is arguments::mla_partials or arguments::mla_attention.
template <typename A>
Latent latent_of(const A& a) {
  return {a.q,
          a.q_rope,
          {a.latents, a.latents, a.capacity, 1, a.rank, a.scale, 0},
          {a.rope_keys, a.rope_keys, a.capacity, 1, a.rope, a.scale, 0},
          {int64_t(a.context) - a.tokens, a.context, 0, true},
          a.heads};
}

template <typename T>
void mla_partials(Batch& batch, const arguments::mla_partials<T>& a) {
  const Latent latent = latent_of(a);
  float *o = a.o, *m = a.m, *l = a.l;
  const uint32_t blocks = a.blocks, heads = a.heads, rank = a.rank;
  const uint32_t tiles = (heads + kQueryRows - 1) / kQueryRows;
  const double each = 2.0 * (a.context / blocks + 1) * kQueryRows * rank * kProductTime;
  batch.add(uint64_t(a.tokens) * blocks * tiles, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item / tiles / blocks), block = uint32_t(item / tiles % blocks);
      const uint32_t head = uint32_t(item % tiles) * kQueryRows, count = least(kQueryRows, heads - head);
      const KeyRange keys = block_of({0, latent.mask.end(token)}, block, blocks, kFewestKeys);
      const uint64_t row = uint64_t(token) * heads + head;
      const LatentRows& w = attend_latents<T>(latent, row, count, keys, [&](uint32_t) { return keys; });
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
void mla_attention(Batch& batch, const arguments::mla_attention<T>& a) {
  const Latent latent = latent_of(a);
  float* y = a.y;
  const uint32_t rows = a.tokens * a.heads, rank = a.rank;
  const double each = 2.0 * kQueryRows * a.context * rank * kProductTime;
  batch.add((rows + kQueryRows - 1) / kQueryRows, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item) * kQueryRows, count = least(kQueryRows, rows - first);
      const auto seen = [&](uint32_t r) { return KeyRange{0, latent.mask.end((first + r) / latent.heads)}; };
      LatentRows& w = attend_latents<T>(latent, first, count, seen(count - 1), seen);
      for (uint32_t r = 0; r < count; ++r) {
        scale_sums(w.rows, r, rank, normalizer(w.rows.top[r], w.rows.total[r], kNoScore));
        w.rows.copy_sums(r, rank, y + uint64_t(first + r) * rank);
      }
    }
  });
}

template <typename T>
void store_row(const float* from, T* to, uint32_t width) {
  for_vectors(width,
              [&](uint32_t i, uint32_t count) { store_some(to + i, load_some(from + i, count), count); });
}

template <typename T>
void mla_append(Batch& batch, const arguments::mla_append<T>& a) {
  batch.add(a.tokens, (a.rank + a.rope) * kStoreTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const uint64_t row = a.position + t;
      store_row(a.latent + t * a.rank, a.latents + row * a.rank, a.rank);
      store_row(a.rope_key + t * a.rope, a.rope_keys + row * a.rope, a.rope);
    }
  });
}

void mla_split(Batch& batch, const arguments::mla_split& a) {
  const double each = (double(a.heads) * (a.nope + a.rope) + a.rank + a.rope) * kCopyTime;
  batch.add(a.tokens, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      for (uint64_t row = t * a.heads; row < (t + 1) * a.heads; ++row) {
        const float* head = a.q + row * (a.nope + a.rope);
        copy_row(a.q_nope + row * a.nope, head, a.nope);
        copy_row(a.q_rope + row * a.rope, head + a.nope, a.rope);
      }
      const float* kv = a.kv + t * (a.rank + a.rope);
      copy_row(a.latent + t * a.rank, kv, a.rank);
      copy_row(a.rope_key + t * a.rope, kv + a.rank, a.rope);
    }
  });
}

}  // namespace

PYTURBO_BODIES(mla_attention, PYTURBO_BODY(mla_partials), PYTURBO_BODY(mla_attention),
               PYTURBO_BODY(mla_append), PYTURBO_BODY(mla_split))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
