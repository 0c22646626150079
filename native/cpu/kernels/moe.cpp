// Routing to experts and back: shaders/moe states what each kernel computes.
#include "cpu/kernels/choose.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr double kValueTime = 0.15;  // nanoseconds of one value that is copied or added

void route_token(const float* logits, uint32_t experts, uint32_t k, bool normalize, int32_t* ids,
                 float* weights) {
  uint32_t keys[kMaxExperts];
  for (uint32_t e = 0; e < experts; ++e) keys[e] = order_key(logits[e]);
  for (uint32_t choice = 0; choice < k; ++choice) ids[choice] = int32_t(take_best(keys, experts));
  const float largest = logits[ids[0]];
  float chosen[kMaxChoices] = {};
  for (uint32_t i = 0; i < k; ++i) chosen[i] = logits[ids[i]] - largest;
  float total = 0;
  for (uint32_t i = 0; i < kMaxChoices; i += kLanes)
    store_floats(chosen + i, exponential(load_floats(chosen + i)));
  if (normalize) {
    for (uint32_t i = 0; i < k; ++i) total += chosen[i];
  } else {
    F32 sums = {};
    for_vectors(experts, [&](uint32_t i, uint32_t count) {
      alignas(64) float part[kLanes];
      store_floats(part, exponential(load_some(logits + i, count) - largest));
      sums += load_some(part, count);
    });
    total = sum(sums);
  }
  for (uint32_t i = 0; i < k; ++i) weights[i] = chosen[i] / total;
}

template <typename X>
void run_gather(const FastLaunch& launch) {
  const X* x = launch.buffer<X>(0);
  const int32_t* index = launch.buffer<int32_t>(1);
  float* y = launch.buffer<float>(2);
  const uint32_t x_rows = launch.value<uint32_t>(4), dim = launch.value<uint32_t>(5),
                 repeat = launch.value<uint32_t>(6);
  launch.batch.add(launch.value<uint32_t>(3), dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      const uint64_t row = uint32_t(index[r]) / repeat;
      const bool known = index[r] >= 0 && row < x_rows;
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        const F32 v = known ? load_some(x + row * dim + i, count) : splat(__builtin_nanf(""));
        store_some(y + r * dim + i, v, count);
      });
    }
  });
}

template <typename B>
void run_add_expert_bias(const FastLaunch& launch) {
  const float* x = launch.buffer<float>(0);
  const B* bias = launch.buffer<B>(1);
  const int32_t *ids = launch.buffer<int32_t>(2),
                *order = launch.constant(0) ? launch.buffer<int32_t>(3) : nullptr;
  float* y = launch.buffer<float>(4);
  const uint32_t rows = launch.value<uint32_t>(5), experts = launch.value<uint32_t>(6),
                 dim = launch.value<uint32_t>(7);
  launch.batch.add(rows, dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      const uint32_t place = order ? uint32_t(order[r]) : uint32_t(r);
      const uint32_t id = place < rows ? uint32_t(ids[place]) : experts;
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        const uint64_t at = r * dim + i;
        const F32 v = id < experts
                          ? load_some(x + at, count) + load_some(bias + uint64_t(id) * dim + i, count)
                          : splat(__builtin_nanf(""));
        store_some(y + at, v, count);
      });
    }
  });
}

}  // namespace

void gather_rows(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_gather, launch); }
void add_expert_bias(const FastLaunch& launch) {
  PYTURBO_BY_TYPE(launch.format.type, run_add_expert_bias, launch);
}

void route(const FastLaunch& launch) {
  const float* logits = launch.buffer<float>(0);
  const uint32_t experts = launch.value<uint32_t>(4), k = launch.value<uint32_t>(5);
  const double each = double(experts) * (k + 3) * kRankTime;
  launch.batch.add(launch.value<uint32_t>(3), each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t)
      route_token(logits + t * experts, experts, k, launch.constant(0), launch.buffer<int32_t>(1) + t * k,
                  launch.buffer<float>(2) + t * k);
  });
}

void moe_buckets(const FastLaunch& launch) {
  const int32_t* ids = launch.buffer<int32_t>(0);
  int32_t *offsets = launch.buffer<int32_t>(1), *order = launch.buffer<int32_t>(2),
          *inverse = launch.buffer<int32_t>(3);
  const uint32_t count = launch.value<uint32_t>(4), experts = launch.value<uint32_t>(5);
  // offsets[e] counts the rows of experts below e, then moves on as they are placed, then is put back.
  for (uint32_t e = 0; e <= experts; ++e) offsets[e] = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t id = least(uint32_t(ids[i]), experts);  // a negative id is a large one
    if (id < experts) ++offsets[id + 1];
  }
  for (uint32_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t id = least(uint32_t(ids[i]), experts);
    const int32_t row = offsets[id]++;
    if (uint32_t(row) < count) order[row] = int32_t(i);  // always, unless ids change meanwhile
    inverse[i] = id < experts ? row : -1;
  }
  for (uint32_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

void moe_combine(const FastLaunch& launch) {
  const float *residual = launch.buffer<float>(0), *rows = launch.buffer<float>(1),
              *weights = launch.buffer<float>(2);
  const float* shared = launch.constant(0) ? launch.buffer<float>(3) : nullptr;
  const float* gate = launch.constant(1) ? launch.buffer<float>(4) : nullptr;
  float* y = launch.buffer<float>(5);
  const uint32_t k = launch.value<uint32_t>(7), dim = launch.value<uint32_t>(8);
  launch.batch.add(launch.value<uint32_t>(6), dim * (k + 2) * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const F32 scale = gate ? splat(sigmoid(splat(gate[t]))[0]) : splat(1.0f);
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        F32 total = {};
        for (uint32_t c = 0; c < k; ++c)
          total = fused(splat(weights[t * k + c]), load_some(rows + (t * k + c) * dim + i, count), total);
        if (shared) total = fused(scale, load_some(shared + t * dim + i, count), total);
        store_some(y + t * dim + i, load_some(residual + t * dim + i, count) + total, count);
      });
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
