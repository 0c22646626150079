// Attention for decode and the rows of its cache: shaders/attention specifies each kernel.
#include "arguments/attention/attention_merge.h"
#include "arguments/attention/attention_partials.h"
#include "arguments/attention/kv_append.h"
#include "cpu/kernels/attention_few.h"
#include "cpu/kernels/attention_merge.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kFewestKeys = 64;   // of a block, except the last one that has any
constexpr double kProductTime = 0.06;  // nanoseconds of one product
constexpr double kBlockTime = 50;      // nanoseconds of a block without keys
constexpr double kMergeTime = 0.1;     // nanoseconds of one value of a block
constexpr double kStoreTime = 0.15;    // nanoseconds of one value of a cache row

// A launch of attention_partials.
struct Decode {
  const float* q;
  float *o, *m, *l;
  uint32_t heads, blocks;
  Cache cache;
  Mask mask;

  // A head's block without keys.
  void set_empty(uint64_t target) const {
    clear_row(o + target * cache.dim, cache.dim);
    m[target] = kNoScore;
    l[target] = 0;
  }
};

// One block of the keys of one token and key head, for all query heads that share it.
template <typename T>
void attend_block(const Decode& a, uint32_t token, uint32_t kv_head, uint32_t block) {
  const uint32_t begin = a.mask.begin(token);
  const uint32_t seen = a.mask.end(token);
  const KeyRange keys = block_of({begin, seen > begin ? seen : begin}, block, a.blocks, kFewestKeys);

  const uint32_t group = a.heads / a.cache.kv_heads, dim = a.cache.dim;
  const uint64_t first_row = uint64_t(token) * a.heads + kv_head * group;
  if (keys.begin == keys.end) {
    for (uint32_t r = 0; r < group; ++r) a.set_empty((first_row + r) * a.blocks + block);
    return;
  }
  AttentionRows& w = *static_cast<AttentionRows*>(item_scratch(sizeof(AttentionRows)));
  for (uint32_t first = 0; first < group; first += kQueryRows) {
    const uint32_t rows = least(kQueryRows, group - first);
    const uint64_t row = first_row + first;
    for (uint32_t r = 0; r < rows; ++r) copy_row(w.queries[r], a.q + (row + r) * dim, dim);
    if (can_attend_few(dim))
      attend_few<T>(a.cache, kv_head, rows, keys, w);
    else
      attend<T>(a.cache, kv_head, rows, keys, [&](uint32_t) { return keys; }, w);
    for (uint32_t r = 0; r < rows; ++r) {
      const uint64_t target = (row + r) * a.blocks + block;
      w.copy_sums(r, dim, a.o + target * dim);
      a.m[target] = w.top[r];
      a.l[target] = w.total[r];
    }
  }
}

template <typename T>
void attention_partials(Batch& batch, const arguments::attention_partials<T>& a) {
  const Cache cache = {a.k, a.v, a.capacity, a.kv_heads, a.dim, a.scale, a.softcap};
  const Mask mask = {int64_t(a.context) - a.tokens, a.context, a.window, a.causal};
  const Decode decode = {a.q, a.o, a.m, a.l, a.heads, a.blocks, cache, mask};
  const uint32_t keys = a.window == 0 ? a.context : least(a.window, a.context);
  const uint32_t length = block_length(keys, a.blocks, kFewestKeys);
  // Blocks that some token may have keys for; the last of them clears the others.
  const uint32_t used = least(keys / length + 1, a.blocks), kv_heads = a.kv_heads;
  const double each = 2.0 * length * a.heads / kv_heads * a.dim * kProductTime + kBlockTime;
  batch.add(uint64_t(a.tokens) * kv_heads * used, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      // Neighbours are heads of the same keys, which lie side by side.
      const uint32_t token = uint32_t(item / kv_heads / used), kv_head = uint32_t(item % kv_heads);
      const uint32_t block = uint32_t(item / kv_heads % used);
      attend_block<T>(decode, token, kv_head, block);
      if (block + 1 == used)
        for (uint32_t other = used; other < decode.blocks; ++other)
          attend_block<T>(decode, token, kv_head, other);
    }
  });
}

template <typename T>
void kv_append(Batch& batch, const arguments::kv_append<T>& a) {
  batch.add(a.tokens, a.width * kStoreTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const uint64_t row = uint32_t(a.position + uint32_t(t)) % a.capacity;
      for_vectors(a.width, [&](uint32_t i, uint32_t count) {
        store_some(a.cache + row * a.width + i, load_some(a.rows + t * a.width + i, count), count);
      });
    }
  });
}

void attention_merge(Batch& batch, const arguments::attention_merge& a) {
  const uint64_t rows = uint64_t(a.tokens) * a.heads;
  batch.add(rows, double(a.blocks) * a.dim * kMergeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row) {
      float* y = a.y + row * a.dim;
      merge_row(a.o + row * a.blocks * a.dim, a.m + row * a.blocks, a.l + row * a.blocks,
                a.sinks ? a.sinks[row % a.heads] : kNoScore, a.blocks, a.dim, y);
      if (a.gate) gate_row(y, a.gate + (2 * row + 1) * a.dim, a.dim);
    }
  });
}

}  // namespace

PYTURBO_BODIES(attention_decode, PYTURBO_BODY(attention_partials), PYTURBO_BODY(kv_append),
               PYTURBO_BODY(attention_merge))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
