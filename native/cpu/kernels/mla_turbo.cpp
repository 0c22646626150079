// Latent attention over a compressed cache: shaders/mla specifies each kernel. Up to kQueryRows heads
// share an unpacked tile of rows.
#include "arguments/mla/mla_turbo_attention.h"
#include "arguments/mla/mla_turbo_partials.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/turbo_attend.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kMaxRope = arguments::mla_turbo_attention::kMaxRope;
static_assert(arguments::mla_turbo_attention::kMaxRank <= kMaxDim);
constexpr uint32_t kFewestKeys = 64;   // of a block, except the last one that has any
constexpr double kProductTime = 0.04;  // nanoseconds of one product
constexpr double kExpandTime = 0.1;    // nanoseconds of one value that is unpacked

// Scratch memory of attend, and the rotary part of the queries.
struct LatentAttending {
  TurboAttending rows;
  alignas(64) float q_rope[kQueryRows][kMaxRope];
};

// chunk[i, key] = value i of `count` rows of `width` values; zero past the last row. load(key, i, part) gives
// `part` values of a row from value i on.
template <typename Load>
void load_columns(const Load& load, uint32_t width, uint32_t count, TileChunk& chunk) {
  for (uint32_t first = 0; first < kKeys; first += kLanes)
    for (uint32_t i = 0; i < width; i += kLanes) {
      const uint32_t part = least(kLanes, width - i);
      U8 block[kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        const uint32_t key = first + l;
        block[l] = key < count ? (U8)load(key, i, part) : U8{};
      }
      transpose(block);
      for (uint32_t l = 0; l < part; ++l) chunk.values[i + l][first / kLanes] = (F32)block[l];
    }
}

// Adds the products of rotary keys to the scores of a tile.
struct RopeScores {
  static constexpr bool kAny = true;
  const Half* keys;
  const float* own;
  const float (*queries)[kMaxRope];
  uint32_t context, rope, rows;

  void operator()(KeyRange tile, TurboAttending& w) const {
    const auto load = [&](uint32_t key, uint32_t i, uint32_t part) {
      const uint64_t row = tile.begin + key;
      if (row < context) return load_some(keys + row * rope + i, part);
      return load_some(own + (row - context) * rope + i, part);
    };
    load_columns(load, rope, tile.end - tile.begin, w.chunk);
    multiply_rows_of(w.chunk, rope, queries[0], kMaxRope, rows, w.scores);
  }
};

// A launch of mla_turbo_partials or mla_turbo_attention.
struct LatentLaunch {
  TurboCache cache;
  Mask mask;
  const float *q, *q_rope, *own_ropes;
  const Half* rope_keys;
  const uint32_t* recent_keys;
  uint32_t tokens, heads, rank, rope;

  template <typename A>
  explicit LatentLaunch(const A& a)
      : q(a.q),
        q_rope(a.q_rope),
        own_ropes(a.own_ropes),
        rope_keys(a.rope_keys),
        recent_keys(a.recent_keys),
        tokens(a.tokens),
        heads(a.heads),
        rank(a.rank),
        rope(a.rope) {
    const TurboHead rows = {
        a.packed, a.scales, nullptr, a.own, a.recent_latents, a.bits, row_words(rank, a.bits)};
    cache = {rows, rows, nullptr, rank, a.context, a.context, a.recent, a.capacity, 0, rank, a.scale, 0};
    const uint32_t all = a.has_own ? a.context + tokens : a.context;
    mask = {int64_t(all) - tokens, all, 0, /*causal=*/true};
  }

  // The rows from (query, head) pair `first` on over `keys`.
  template <typename Seen>
  const TurboAttending& attend_pairs(uint64_t first, uint32_t count, KeyRange keys, const Seen& seen) const {
    LatentAttending& w = *static_cast<LatentAttending*>(item_scratch(sizeof(LatentAttending)));
    for (uint32_t r = 0; r < count; ++r) {
      copy_row(w.rows.queries[r], q + (first + r) * rank, rank);
      copy_row(w.q_rope[r], q_rope + (first + r) * rope, rope);
    }
    TurboCache now = cache;
    now.exact = first_recent(recent_keys, cache.recent, cache.context);
    attend(now, count, keys, seen, w.rows,
           RopeScores{rope_keys, own_ropes, w.q_rope, cache.context, rope, count});
    return w.rows;
  }

  // Nanoseconds that kQueryRows rows take with `keys` keys.
  double time(double keys) const { return 2 * keys * rank * (kQueryRows * kProductTime + kExpandTime); }
};

void mla_turbo_partials(Batch& batch, const arguments::mla_turbo_partials& a) {
  const LatentLaunch latent(a);
  float *o = a.o, *m = a.m, *l = a.l;
  const uint32_t blocks = a.blocks, tiles = (a.heads + kQueryRows - 1) / kQueryRows;
  const double each = latent.time(double(latent.mask.context) / blocks + 1);
  batch.add(uint64_t(a.tokens) * blocks * tiles, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item / tiles / blocks), block = uint32_t(item / tiles % blocks);
      const uint32_t head = uint32_t(item % tiles) * kQueryRows;
      const uint32_t count = least(kQueryRows, latent.heads - head);
      const KeyRange keys = block_of({0, latent.mask.end(token)}, block, blocks, kFewestKeys);
      const uint64_t row = uint64_t(token) * latent.heads + head;
      const TurboAttending& w = latent.attend_pairs(row, count, keys, [&](uint32_t) { return keys; });
      for (uint32_t r = 0; r < count; ++r) {
        const uint64_t target = (row + r) * blocks + block;
        w.store(r, latent.rank, 1.0f, o + target * latent.rank);
        m[target] = w.top[r];
        l[target] = w.total[r];
      }
    }
  });
}

void mla_turbo_attention(Batch& batch, const arguments::mla_turbo_attention& a) {
  const LatentLaunch latent(a);
  float* y = a.y;
  const uint32_t rows = a.tokens * a.heads, rank = a.rank;
  const double each = latent.time(latent.mask.context);
  batch.add((rows + kQueryRows - 1) / kQueryRows, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item) * kQueryRows, count = least(kQueryRows, rows - first);
      const auto seen = [&](uint32_t r) { return KeyRange{0, latent.mask.end((first + r) / latent.heads)}; };
      const TurboAttending& w = latent.attend_pairs(first, count, seen(count - 1), seen);
      for (uint32_t r = 0; r < count; ++r)
        w.store(r, rank, normalizer(w.top[r], w.total[r], kNoScore), y + uint64_t(first + r) * rank);
    }
  });
}

}  // namespace

PYTURBO_BODIES(mla_turbo, PYTURBO_BODY(mla_turbo_partials), PYTURBO_BODY(mla_turbo_attention))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
