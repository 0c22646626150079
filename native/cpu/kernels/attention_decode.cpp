// Attention for decode and the rows of its cache: shaders/attention states what each kernel computes.
#include "cpu/kernels/attention_merge.h"
#include "cpu/kernels/attention_rows.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_ISA {
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
void run_partials(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t tokens = value(6), context = value(7), heads = value(9), kv_heads = value(10),
                 dim = value(11);
  const uint32_t blocks = value(12), window = value(14);
  const Cache cache = {launch.buffer<void>(1),  launch.buffer<void>(2), value(8), kv_heads, dim,
                       launch.value<float>(13), launch.value<float>(15)};
  const Decode a = {launch.buffer<float>(0),
                    launch.buffer<float>(3),
                    launch.buffer<float>(4),
                    launch.buffer<float>(5),
                    heads,
                    blocks,
                    cache,
                    {int64_t(context) - tokens, context, window, launch.constant(0)}};
  const uint32_t keys = window == 0 ? context : least(window, context);
  const uint32_t length = block_length(keys, blocks, kFewestKeys);
  // Blocks that some token may have keys for; the last of them clears the others.
  const uint32_t used = least(keys / length + 1, blocks);
  const double each = 2.0 * length * heads / kv_heads * dim * kProductTime + kBlockTime;
  launch.batch.add(uint64_t(tokens) * kv_heads * used, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t token = uint32_t(item / used / kv_heads), kv_head = uint32_t(item / used % kv_heads);
      const uint32_t block = uint32_t(item % used);
      attend_block<T>(a, token, kv_head, block);
      if (block + 1 == used)
        for (uint32_t other = used; other < blocks; ++other) attend_block<T>(a, token, kv_head, other);
    }
  });
}

template <typename T>
void run_append(const FastLaunch& launch) {
  const float* rows = launch.buffer<float>(0);
  T* cache = launch.buffer<T>(1);
  const uint32_t capacity = launch.value<uint32_t>(3), width = launch.value<uint32_t>(4);
  const uint32_t position = launch.value<uint32_t>(5);
  launch.batch.add(launch.value<uint32_t>(2), width * kStoreTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const uint64_t row = uint32_t(position + uint32_t(t)) % capacity;
      for_vectors(width, [&](uint32_t i, uint32_t count) {
        store_some(cache + row * width + i, load_some(rows + t * width + i, count), count);
      });
    }
  });
}

}  // namespace

void attention_partials(const FastLaunch& launch) {
  PYTURBO_BY_TYPE(launch.format.type, run_partials, launch);
}
void kv_append(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_append, launch); }

void attention_merge(const FastLaunch& launch) {
  const float *o = launch.buffer<float>(0), *m = launch.buffer<float>(1), *l = launch.buffer<float>(2);
  const float* sinks = launch.constant(0) ? launch.buffer<float>(3) : nullptr;
  float* y = launch.buffer<float>(4);
  const uint32_t heads = launch.value<uint32_t>(6), blocks = launch.value<uint32_t>(7),
                 dim = launch.value<uint32_t>(8);
  const uint64_t rows = uint64_t(launch.value<uint32_t>(5)) * heads;
  launch.batch.add(rows, double(blocks) * dim * kMergeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row)
      merge_row(o + row * blocks * dim, m + row * blocks, l + row * blocks,
                sinks ? sinks[row % heads] : kNoScore, blocks, dim, y + row * dim);
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
