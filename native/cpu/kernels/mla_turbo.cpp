// Latent attention over a compressed cache: shaders/mla states what each kernel computes. Up to kQueryRows
// heads share what is unpacked of a tile of rows.
#include "cpu/kernels/families.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/turbo_attend.h"
#include "cpu/kernels/turbo_launch.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kMaxRope = 64;
constexpr uint32_t kFewestKeys = 64;   // of a block, except the last one that has any
constexpr double kProductTime = 0.04;  // nanoseconds of one product
constexpr double kExpandTime = 0.1;    // nanoseconds of one value that is unpacked

// Rows at work, and the part of their queries that turns.
struct LatentAttending {
  TurboAttending rows;
  alignas(64) float q_rope[kQueryRows][kMaxRope];
};

// chunk[i, key] = value i of `count` rows of `width` values; zero past the last row.
template <typename T>
void load_columns(const T* rows, uint32_t width, uint32_t count, TileChunk& chunk) {
  for (uint32_t first = 0; first < kKeys; first += kLanes)
    for (uint32_t i = 0; i < width; i += kLanes) {
      const uint32_t part = least(kLanes, width - i);
      U8 block[kLanes];
      for (uint32_t l = 0; l < kLanes; ++l) {
        const uint64_t key = first + l;
        block[l] = key < count ? (U8)load_some(rows + key * width + i, part) : U8{};
      }
      transpose(block);
      for (uint32_t l = 0; l < part; ++l) chunk.values[i + l][first / kLanes] = (F32)block[l];
    }
}

// What rotary keys add to the scores of a tile.
struct RopeScores {
  static constexpr bool kAny = true;
  const Half* keys;
  const float* own;
  const float (*queries)[kMaxRope];
  uint32_t context, rope, rows;

  void operator()(KeyRange tile, TurboAttending& w) const {
    const uint64_t count = tile.end - tile.begin;
    if (tile.begin < context)
      load_columns(keys + uint64_t(tile.begin) * rope, rope, uint32_t(count), w.chunk);
    else
      load_columns(own + uint64_t(tile.begin - context) * rope, rope, uint32_t(count), w.chunk);
    multiply_rows(w.chunk, rope, queries[0], kMaxRope, rows, w.scores);
  }
};

// A launch of mla_turbo_partials or mla_turbo_attention, whose sizes start at [[buffer(sizes)]].
struct LatentLaunch {
  TurboCache cache;
  Mask mask;
  const float *q, *q_rope, *own_ropes;
  const Half* rope_keys;
  uint32_t tokens, heads, rank, rope;

  LatentLaunch(const FastLaunch& launch, uint32_t sizes, float scale) {
    const auto value = [&](uint32_t i) { return launch.value<uint32_t>(sizes + i); };
    const bool has_own = launch.constant(1);
    const uint32_t bits = width_constant(launch, 0), context = value(1);
    tokens = value(0);
    heads = value(3);
    rank = value(4);
    rope = value(5);
    q = launch.buffer<float>(0);
    q_rope = launch.buffer<float>(1);
    rope_keys = launch.buffer<Half>(4);
    own_ropes = has_own ? launch.buffer<float>(6) : nullptr;
    const TurboHead rows = {launch.buffer<uint32_t>(2),
                            launch.buffer<float>(3),
                            nullptr,
                            has_own ? launch.buffer<float>(5) : nullptr,
                            bits,
                            row_words(rank, bits)};
    cache = {rows, rows, nullptr, rank, context, value(2), 0, rank, scale, 0};
    const uint32_t all = has_own ? context + tokens : context;
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
    attend(cache, count, keys, seen, w.rows,
           RopeScores{rope_keys, own_ropes, w.q_rope, cache.context, rope, count});
    return w.rows;
  }

  // Nanoseconds that kQueryRows rows take with `keys` keys.
  double time(double keys) const { return 2 * keys * rank * (kQueryRows * kProductTime + kExpandTime); }
};

}  // namespace

void mla_turbo_partials(const FastLaunch& launch) {
  const LatentLaunch a(launch, 10, launch.value<float>(17));
  float *o = launch.buffer<float>(7), *m = launch.buffer<float>(8), *l = launch.buffer<float>(9);
  const uint32_t blocks = launch.value<uint32_t>(16), tiles = (a.heads + kQueryRows - 1) / kQueryRows;
  const double each = a.time(double(a.mask.context) / blocks + 1);
  launch.batch.add(uint64_t(a.tokens) * blocks * tiles, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item / tiles / blocks), block = uint32_t(item / tiles % blocks);
      const uint32_t head = uint32_t(item % tiles) * kQueryRows, count = least(kQueryRows, a.heads - head);
      const KeyRange keys = block_of({0, a.mask.end(token)}, block, blocks, kFewestKeys);
      const uint64_t row = uint64_t(token) * a.heads + head;
      const TurboAttending& w = a.attend_pairs(row, count, keys, [&](uint32_t) { return keys; });
      for (uint32_t r = 0; r < count; ++r) {
        const uint64_t target = (row + r) * blocks + block;
        w.store(r, a.rank, 1.0f, o + target * a.rank);
        m[target] = w.top[r];
        l[target] = w.total[r];
      }
    }
  });
}

void mla_turbo_attention(const FastLaunch& launch) {
  const LatentLaunch a(launch, 8, launch.value<float>(14));
  float* y = launch.buffer<float>(7);
  const uint32_t rows = a.tokens * a.heads;
  launch.batch.add(
      (rows + kQueryRows - 1) / kQueryRows, a.time(a.mask.context), [=](uint64_t begin, uint64_t end) {
        for (uint64_t item = begin; item < end; ++item) {
          const uint32_t first = uint32_t(item) * kQueryRows, count = least(kQueryRows, rows - first);
          const auto seen = [&](uint32_t r) { return KeyRange{0, a.mask.end((first + r) / a.heads)}; };
          const TurboAttending& w = a.attend_pairs(first, count, seen(count - 1), seen);
          for (uint32_t r = 0; r < count; ++r)
            w.store(r, a.rank, normalizer(w.top[r], w.total[r], kNoScore), y + uint64_t(first + r) * a.rank);
        }
      });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
