// Attention over a compressed cache: shaders/turboquant states what each kernel computes.
#include "cpu/kernels/attention_merge.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/scratch.h"
#include "cpu/kernels/turbo_attend.h"
#include "cpu/kernels/turbo_launch.h"
#include "cpu/kernels/turbo_rotation.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kFewestKeys = 16;   // of a block, except the last one that has any
constexpr double kProductTime = 0.05;  // nanoseconds of one product
constexpr double kExpandTime = 0.1;    // nanoseconds of one value that is unpacked
constexpr double kBlockTime = 50;      // nanoseconds of a block without keys
constexpr double kMergeTime = 0.1;     // nanoseconds of one value of a block

// The arguments that turbo_partials, turbo_attention and turbo_prefill have in common: inputs from
// [[buffer(0)]] on, sizes from [[buffer(sizes)]] on.
struct TurboLaunch {
  FastLaunch launch;
  bool has_means, has_own;
  uint32_t key_bits, value_bits;
  uint32_t batch, tokens, context, capacity, ring_start, heads, kv_heads, dim;

  TurboLaunch(const FastLaunch& of, uint32_t sizes) : launch(of) {
    key_bits = width_constant(of, 0);
    value_bits = width_constant(of, 1);
    has_means = of.constant(2);
    has_own = of.constant(3);
    uint32_t* const values[] = {&batch, &tokens, &context, &capacity, &ring_start, &heads, &kv_heads, &dim};
    for (uint32_t i = 0; i < 8; ++i) *values[i] = of.value<uint32_t>(sizes + i);
  }

  uint32_t group() const { return heads / kv_heads; }

  Mask mask(uint32_t window) const {
    const uint32_t all = has_own ? context + tokens : context;
    return {int64_t(all) - tokens, all, window, /*causal=*/true};
  }

  // Key head `head` of all sequences.
  TurboCache cache(uint64_t head, float scale, float cap) const {
    const uint64_t row = head * capacity, stride = uint64_t(kv_heads) * dim;
    const uint64_t own = head / kv_heads * tokens * stride + head % kv_heads * dim;
    const auto rows = [&](uint32_t first, uint32_t bits, uint32_t means, uint32_t exact) {
      const uint32_t words = row_words(dim, bits);
      return TurboHead{launch.buffer<uint32_t>(first) + row * words,
                       launch.buffer<float>(first + 1) + row,
                       has_means ? launch.buffer<float>(means) + row : nullptr,
                       has_own ? launch.buffer<float>(exact) + own : nullptr,
                       bits,
                       words};
    };
    return {rows(1, key_bits, 5, 8),
            rows(3, value_bits, 6, 9),
            has_means ? launch.buffer<float>(7) : nullptr,
            stride,
            context,
            capacity,
            ring_start,
            dim,
            scale,
            cap};
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
void for_heads(const TurboLaunch& a, uint64_t head, uint32_t token, KeyRange keys, float scale, float cap,
               const Fn& fn) {
  TurboAttending& w = scratch();
  const TurboCache cache = a.cache(head, scale, cap);
  const uint64_t first_row = (head / a.kv_heads * a.tokens + token) * a.heads + head % a.kv_heads * a.group();
  for (uint32_t first = 0; first < a.group(); first += kQueryRows) {
    const uint32_t rows = least(kQueryRows, a.group() - first);
    const T* q = a.launch.buffer<T>(0) + (first_row + first) * a.dim;
    for (uint32_t r = 0; r < rows; ++r) load_query(q + uint64_t(r) * a.dim, a.dim, w.queries[r]);
    attend(cache, rows, keys, [&](uint32_t) { return keys; }, w);
    fn(w, first_row + first, rows);
  }
}

KeyRange seen_by(const Mask& mask, uint32_t token) {
  const uint32_t begin = mask.begin(token), end = mask.end(token);
  return {begin, end > begin ? end : begin};
}

template <typename T>
void run_partials(const FastLaunch& launch) {
  const TurboLaunch a(launch, 13);
  const uint32_t blocks = launch.value<uint32_t>(21);
  const float scale = launch.value<float>(22), cap = launch.value<float>(24);
  const Mask mask = a.mask(launch.value<uint32_t>(23));
  float *o = launch.buffer<float>(10), *m = launch.buffer<float>(11), *l = launch.buffer<float>(12);
  const uint64_t heads = uint64_t(a.batch) * a.kv_heads;
  const double each = a.time(a.group(), double(mask.context) / blocks);
  launch.batch.add(heads * a.tokens * blocks, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t block = uint32_t(item % blocks), token = uint32_t(item / blocks % a.tokens);
      const KeyRange keys = block_of(seen_by(mask, token), block, blocks, kFewestKeys);
      for_heads<T>(a, item / blocks / a.tokens, token, keys, scale, cap,
                   [&](const TurboAttending& w, uint64_t row, uint32_t rows) {
                     for (uint32_t r = 0; r < rows; ++r) {
                       const uint64_t target = (row + r) * blocks + block;
                       w.store(r, a.dim, 1.0f, o + target * a.dim);
                       m[target] = w.top[r];
                       l[target] = w.total[r];
                     }
                   });
    }
  });
}

template <typename T>
void run_attention(const FastLaunch& launch) {
  const TurboLaunch a(launch, 12);
  const float scale = launch.value<float>(20), cap = launch.value<float>(22);
  const Mask mask = a.mask(launch.value<uint32_t>(21));
  const float* sinks = launch.constant(4) ? launch.buffer<float>(10) : nullptr;
  T* y = launch.buffer<T>(11);
  const uint64_t heads = uint64_t(a.batch) * a.kv_heads;
  const double each = a.time(a.group(), mask.context);
  launch.batch.add(heads * a.tokens, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item % a.tokens);
      for_heads<T>(a, item / a.tokens, token, seen_by(mask, token), scale, cap,
                   [&](const TurboAttending& w, uint64_t row, uint32_t rows) {
                     for (uint32_t r = 0; r < rows; ++r) {
                       const float sink = sinks ? sinks[(row + r) % a.heads] : kNoScore;
                       w.store(r, a.dim, normalizer(w.top[r], w.total[r], sink), y + (row + r) * a.dim);
                     }
                   });
    }
  });
}

// Rows [first, first + rows) of a key head; row r is head r % group of query r / group.
void attend_tile(const TurboLaunch& a, const Mask& mask, const float* sinks, uint64_t head, uint32_t first,
                 uint32_t rows) {
  TurboAttending& w = scratch();
  const float scale = a.launch.value<float>(20), cap = a.launch.value<float>(22);
  const uint64_t sequence = head / a.kv_heads;
  const auto query = [&](uint32_t r) { return (first + r) / a.group(); };
  const auto query_head = [&](uint32_t r) {
    return uint32_t(head % a.kv_heads) * a.group() + (first + r) % a.group();
  };
  const auto place = [&](uint32_t r) {
    return ((sequence * a.tokens + query(r)) * a.heads + query_head(r)) * a.dim;
  };
  for (uint32_t r = 0; r < rows; ++r) load_query(a.launch.buffer<float>(0) + place(r), a.dim, w.queries[r]);
  const KeyRange keys = {mask.begin(query(0)), mask.end(query(rows - 1))};
  attend(a.cache(head, scale, cap), rows, keys, [&](uint32_t r) { return seen_by(mask, query(r)); }, w);
  for (uint32_t r = 0; r < rows; ++r) {
    const float inverse = normalizer(w.top[r], w.total[r], sinks ? sinks[query_head(r)] : kNoScore);
    w.store(r, a.dim, inverse, a.launch.buffer<float>(11) + place(r));
  }
}

template <typename T>
void run_merge(const FastLaunch& launch) {
  const float *o = launch.buffer<float>(0), *m = launch.buffer<float>(1), *l = launch.buffer<float>(2);
  const float* sinks = launch.constant(0) ? launch.buffer<float>(3) : nullptr;
  const float* signs = launch.constant(1) ? launch.buffer<float>(4) : nullptr;
  T* y = launch.buffer<T>(5);
  const uint32_t heads = launch.value<uint32_t>(7), blocks = launch.value<uint32_t>(8);
  const uint32_t dim = launch.value<uint32_t>(9);
  const float factor = 1.0f / __builtin_sqrtf(float(dim));
  const uint64_t rows = uint64_t(launch.value<uint32_t>(6)) * heads;
  launch.batch.add(rows, (double(blocks) + 4) * dim * kMergeTime, [=](uint64_t begin, uint64_t end) {
    alignas(64) float merged[kMaxDim];
    for (uint64_t row = begin; row < end; ++row) {
      merge_row(o + row * blocks * dim, m + row * blocks, l + row * blocks,
                sinks ? sinks[row % heads] : kNoScore, blocks, dim, merged);
      if (signs) hadamard_row(merged, dim, /*transposed=*/true);
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        F32 v = load_some(merged + i, count);
        if (signs) v *= factor * load_some(signs + i, count);
        store_some(y + row * dim + i, v, count);
      });
    }
  });
}

}  // namespace

void turbo_partials(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_partials, launch); }
void turbo_attention(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_attention, launch); }
void turbo_merge(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_merge, launch); }

void turbo_prefill(const FastLaunch& launch) {
  const TurboLaunch a(launch, 12);
  const Mask mask = a.mask(launch.value<uint32_t>(21));
  const float* sinks = launch.constant(4) ? launch.buffer<float>(10) : nullptr;
  const uint32_t rows = a.tokens * a.group();
  const uint64_t tiles = (rows + kQueryRows - 1) / kQueryRows;
  const uint64_t heads = uint64_t(a.batch) * a.kv_heads;
  launch.batch.add(tiles * heads, a.time(kQueryRows, mask.context), [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % tiles) * kQueryRows;
      attend_tile(a, mask, sinks, item / tiles, first, least(kQueryRows, rows - first));
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
