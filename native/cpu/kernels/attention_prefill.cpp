// Attention for prefill: shaders/attention/attention.metal states what the kernel computes.
#include "cpu/kernels/attention_rows.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr double kProductTime = 0.03;  // nanoseconds of one product

// A launch of attention.
struct Prefill {
  const float* q;
  const float* sinks;
  float* y;
  uint32_t tokens, heads;
  Cache cache;
  Mask mask;
};

// The rows [first, first + rows) of one key head; row r is head r % group of query r / group.
template <typename T>
void attend_rows(const Prefill& a, uint32_t kv_head, uint32_t first, uint32_t rows) {
  AttentionRows& w = *static_cast<AttentionRows*>(item_scratch(sizeof(AttentionRows)));
  const uint32_t group = a.heads / a.cache.kv_heads, dim = a.cache.dim;
  const auto query = [&](uint32_t r) { return (first + r) / group; };
  const auto head = [&](uint32_t r) { return kv_head * group + (first + r) % group; };
  const auto place = [&](uint32_t r) { return (uint64_t(query(r)) * a.heads + head(r)) * dim; };
  for (uint32_t r = 0; r < rows; ++r) copy_row(w.queries[r], a.q + place(r), dim);

  const KeyRange keys = {a.mask.begin(query(0)), a.mask.end(query(rows - 1))};
  const auto seen = [&](uint32_t r) { return KeyRange{a.mask.begin(query(r)), a.mask.end(query(r))}; };
  attend<T>(a.cache, kv_head, rows, keys, seen, w);
  for (uint32_t r = 0; r < rows; ++r) {
    const float inverse = normalizer(w.top[r], w.total[r], a.sinks ? a.sinks[head(r)] : kNoScore);
    scale_sums(w, r, dim, inverse);
    w.copy_sums(r, dim, a.y + place(r));
  }
}

template <typename T>
void run_attention(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t tokens = value(5), context = value(6), heads = value(8), kv_heads = value(9),
                 dim = value(10);
  const Cache cache = {launch.buffer<void>(1),  launch.buffer<void>(2), value(7), kv_heads, dim,
                       launch.value<float>(11), launch.value<float>(13)};
  const Prefill a = {launch.buffer<float>(0),
                     launch.constant(1) ? launch.buffer<float>(3) : nullptr,
                     launch.buffer<float>(4),
                     tokens,
                     heads,
                     cache,
                     {int64_t(context) - tokens, context, value(12), launch.constant(0)}};
  const uint32_t rows = tokens * (heads / kv_heads);
  const uint64_t tiles = (rows + kQueryRows - 1) / kQueryRows;
  const double each = 2.0 * kQueryRows * context * dim * kProductTime;
  launch.batch.add(tiles * kv_heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % tiles) * kQueryRows;
      attend_rows<T>(a, uint32_t(item / tiles), first, least(kQueryRows, rows - first));
    }
  });
}

}  // namespace

void attention(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_attention, launch); }

}  // namespace pyturbo::cpu::PYTURBO_ISA
