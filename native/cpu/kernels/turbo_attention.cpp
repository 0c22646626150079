// Attention over a compressed cache: shaders/turboquant specifies each kernel.
#include "arguments/turboquant/turbo_attention.h"
#include "arguments/turboquant/turbo_merge.h"
#include "arguments/turboquant/turbo_partials.h"
#include "arguments/turboquant/turbo_prefill.h"
#include "cpu/kernels/attention_merge.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/turbo_attend.h"
#include "cpu/kernels/turbo_rotation.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kFewestKeys = 16;   // of a block, except the last one that has any
constexpr double kProductTime = 0.05;  // nanoseconds of one product
constexpr double kExpandTime = 0.1;    // nanoseconds of one value that is unpacked
constexpr double kBlockTime = 50;      // nanoseconds of a block without keys
constexpr double kMergeTime = 0.1;     // nanoseconds of one value of a block
static_assert(arguments::turbo_merge<float>::kMaxDim <= kMaxDim);

// A launch of turbo_partials, turbo_attention or turbo_prefill, without its queries and results.
struct TurboLaunch {
  TurboHead keys, values;  // of the first key head
  const float* ones;
  const uint32_t* recent_keys;
  uint32_t batch, tokens, context, recent, capacity, ring_start, heads, kv_heads, dim;
  float scale, cap;
  Mask mask;

  template <typename A>
  explicit TurboLaunch(const A& a)
      : keys{a.k_packed,
             a.k_scales,
             a.k_means,
             a.own_k,
             a.k_recent,
             a.key_bits,
             row_words(a.dim, a.key_bits)},
        values{a.v_packed,
               a.v_scales,
               a.v_means,
               a.own_v,
               a.v_recent,
               a.value_bits,
               row_words(a.dim, a.value_bits)},
        ones(a.ones),
        recent_keys(a.recent_keys),
        batch(a.batch),
        tokens(a.tokens),
        context(a.context),
        recent(a.recent),
        capacity(a.capacity),
        ring_start(a.ring_start),
        heads(a.heads),
        kv_heads(a.kv_heads),
        dim(a.dim),
        scale(a.scale),
        cap(a.softcap) {
    const uint32_t all = a.has_own ? context + tokens : context;
    mask = {int64_t(all) - tokens, all, a.window, /*causal=*/true};
  }

  uint32_t group() const { return heads / kv_heads; }

  // Key head `head` of all sequences.
  TurboCache cache(uint64_t head) const {
    const uint64_t row = head * capacity, stride = uint64_t(kv_heads) * dim;
    const uint64_t own = head / kv_heads * tokens * stride + head % kv_heads * dim;
    const auto at = [&](TurboHead rows) {
      rows.packed += row * rows.words;
      rows.scales += row;
      if (rows.means) rows.means += row;
      if (rows.own) rows.own += own;
      if (rows.recent) rows.recent += head * recent * dim;
      return rows;
    };
    const uint32_t exact = first_recent(recent_keys, recent, context);
    return {at(keys), at(values), ones,       stride, context, exact,
            recent,   capacity,   ring_start, dim,    scale,   cap};
  }

  // Nanoseconds that `rows` rows take with `keys` keys.
  double time(double rows, double keys) const {
    return 2 * keys * dim * (rows * kProductTime + kExpandTime) + kBlockTime;
  }
};

TurboAttending& scratch() { return *static_cast<TurboAttending*>(item_scratch(sizeof(TurboAttending))); }

template <typename T>
void load_query(const T* q, uint32_t dim, float* row) {
  for (uint32_t i = 0; i < dim; i += kLanes) store_floats(row + i, load_floats(q + i));
}

// Calls fn(results, row of q, rows) for the query heads of one token and key head, kQueryRows at a time.
template <typename T, typename Fn>
void for_heads(const TurboLaunch& launch, const T* queries, uint64_t head, uint32_t token, KeyRange keys,
               const Fn& fn) {
  TurboAttending& w = scratch();
  const TurboCache cache = launch.cache(head);
  const uint32_t group = launch.group(), dim = launch.dim;
  const uint64_t first_row =
      (head / launch.kv_heads * launch.tokens + token) * launch.heads + head % launch.kv_heads * group;
  for (uint32_t first = 0; first < group; first += kQueryRows) {
    const uint32_t rows = least(kQueryRows, group - first);
    const T* q = queries + (first_row + first) * dim;
    for (uint32_t r = 0; r < rows; ++r) load_query(q + uint64_t(r) * dim, dim, w.queries[r]);
    attend(cache, rows, keys, [&](uint32_t) { return keys; }, w);
    fn(w, first_row + first, rows);
  }
}

KeyRange seen_by(const Mask& mask, uint32_t token) {
  const uint32_t begin = mask.begin(token), end = mask.end(token);
  return {begin, end > begin ? end : begin};
}

template <typename T>
void turbo_partials(Batch& batch, const arguments::turbo_partials<T>& a) {
  const TurboLaunch launch(a);
  const T* q = a.q;
  float *o = a.o, *m = a.m, *l = a.l;
  const uint32_t blocks = a.blocks;
  const uint64_t heads = uint64_t(a.batch) * a.kv_heads;
  const double each = launch.time(launch.group(), double(launch.mask.context) / blocks);
  batch.add(heads * a.tokens * blocks, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t block = uint32_t(item % blocks), token = uint32_t(item / blocks % launch.tokens);
      const KeyRange keys = block_of(seen_by(launch.mask, token), block, blocks, kFewestKeys);
      for_heads(launch, q, item / blocks / launch.tokens, token, keys,
                [&](const TurboAttending& w, uint64_t row, uint32_t rows) {
                  for (uint32_t r = 0; r < rows; ++r) {
                    const uint64_t target = (row + r) * blocks + block;
                    w.store(r, launch.dim, 1.0f, o + target * launch.dim);
                    m[target] = w.top[r];
                    l[target] = w.total[r];
                  }
                });
    }
  });
}

template <typename T>
void turbo_attention(Batch& batch, const arguments::turbo_attention<T>& a) {
  const TurboLaunch launch(a);
  const T* q = a.q;
  const float* sinks = a.sinks;
  T* y = a.y;
  const uint64_t heads = uint64_t(a.batch) * a.kv_heads;
  const double each = launch.time(launch.group(), launch.mask.context);
  batch.add(heads * a.tokens, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item % launch.tokens);
      for_heads(launch, q, item / launch.tokens, token, seen_by(launch.mask, token),
                [&](const TurboAttending& w, uint64_t row, uint32_t rows) {
                  for (uint32_t r = 0; r < rows; ++r) {
                    const float sink = sinks ? sinks[(row + r) % launch.heads] : kNoScore;
                    const float inverse = normalizer(w.top[r], w.total[r], sink);
                    w.store(r, launch.dim, inverse, y + (row + r) * launch.dim);
                  }
                });
    }
  });
}

// The queries and results of a launch of turbo_prefill.
struct PrefillRows {
  const float *q, *sinks;
  float* y;
};

// Rows [first, first + rows) of a key head; row r is head r % group of query r / group.
void attend_tile(const TurboLaunch& launch, const PrefillRows& p, uint64_t head, uint32_t first,
                 uint32_t rows) {
  TurboAttending& w = scratch();
  const uint32_t group = launch.group(), dim = launch.dim;
  const uint64_t sequence = head / launch.kv_heads;
  const auto query = [&](uint32_t r) { return (first + r) / group; };
  const auto query_head = [&](uint32_t r) {
    return uint32_t(head % launch.kv_heads) * group + (first + r) % group;
  };
  const auto place = [&](uint32_t r) {
    return ((sequence * launch.tokens + query(r)) * launch.heads + query_head(r)) * dim;
  };
  const Mask& mask = launch.mask;
  for (uint32_t r = 0; r < rows; ++r) load_query(p.q + place(r), dim, w.queries[r]);
  const KeyRange keys = {mask.begin(query(0)), mask.end(query(rows - 1))};
  attend(launch.cache(head), rows, keys, [&](uint32_t r) { return seen_by(mask, query(r)); }, w);
  for (uint32_t r = 0; r < rows; ++r) {
    const float inverse = normalizer(w.top[r], w.total[r], p.sinks ? p.sinks[query_head(r)] : kNoScore);
    w.store(r, dim, inverse, p.y + place(r));
  }
}

void turbo_prefill(Batch& batch, const arguments::turbo_prefill& a) {
  const TurboLaunch launch(a);
  const PrefillRows prefill = {a.q, a.sinks, a.y};
  const uint32_t rows = a.tokens * launch.group();
  const uint64_t tiles = (rows + kQueryRows - 1) / kQueryRows;
  const uint64_t heads = uint64_t(a.batch) * a.kv_heads;
  batch.add(tiles * heads, launch.time(kQueryRows, launch.mask.context), [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % tiles) * kQueryRows;
      attend_tile(launch, prefill, item / tiles, first, least(kQueryRows, rows - first));
    }
  });
}

template <typename T>
void turbo_merge(Batch& batch, const arguments::turbo_merge<T>& a) {
  const float factor = 1.0f / __builtin_sqrtf(float(a.dim));
  const uint64_t rows = uint64_t(a.tokens) * a.heads;
  batch.add(rows, (double(a.blocks) + 4) * a.dim * kMergeTime, [=](uint64_t begin, uint64_t end) {
    alignas(64) float merged[kMaxDim];
    for (uint64_t row = begin; row < end; ++row) {
      merge_row(a.o + row * a.blocks * a.dim, a.m + row * a.blocks, a.l + row * a.blocks,
                a.sinks ? a.sinks[row % a.heads] : kNoScore, a.blocks, a.dim, merged);
      if (a.signs) hadamard_row(merged, a.dim, /*transposed=*/true);
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        F32 v = load_some(merged + i, count);
        if (a.signs) v *= factor * load_some(a.signs + i, count);
        if (a.gate) v *= sigmoid(load_some(a.gate + (2 * row + 1) * a.dim + i, count));
        store_some(a.y + row * a.dim + i, v, count);
      });
    }
  });
}

}  // namespace

PYTURBO_BODIES(turbo_attention, PYTURBO_BODY(turbo_partials), PYTURBO_BODY(turbo_attention),
               PYTURBO_BODY(turbo_prefill), PYTURBO_BODY(turbo_merge))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
