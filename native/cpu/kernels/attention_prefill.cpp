// Attention for prefill: shaders/attention/attention.metal specifies it.
#include "arguments/attention/attention.h"
#include "cpu/kernels/attention_rows.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
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
void attention(Batch& batch, const arguments::attention<T>& a) {
  const Cache cache = {a.k, a.v, a.capacity, a.kv_heads, a.dim, a.scale, a.softcap};
  const Mask mask = {int64_t(a.context) - a.tokens, a.context, a.window, a.causal};
  const Prefill prefill = {a.q, a.sinks, a.y, a.tokens, a.heads, cache, mask};
  const uint32_t rows = a.tokens * (a.heads / a.kv_heads);
  const uint64_t tiles = (rows + kQueryRows - 1) / kQueryRows;
  const double each = 2.0 * kQueryRows * a.context * a.dim * kProductTime;
  batch.add(tiles * a.kv_heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % tiles) * kQueryRows;
      attend_rows<T>(prefill, uint32_t(item / tiles), first, least(kQueryRows, rows - first));
    }
  });
}

}  // namespace

PYTURBO_BODIES(attention_prefill, PYTURBO_BODY(attention))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
