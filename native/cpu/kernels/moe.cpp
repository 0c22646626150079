// Routing to experts and back: shaders/moe specifies each kernel.
#include "arguments/moe/add_expert_bias.h"
#include "arguments/moe/find_slots.h"
#include "arguments/moe/gather_rows.h"
#include "arguments/moe/moe_buckets.h"
#include "arguments/moe/moe_combine.h"
#include "arguments/moe/route.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/choose.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/slots.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr double kValueTime = 0.15;  // nanoseconds of one value that is copied or added

static_assert(kSimdWidth * arguments::route::kPerLane <= kMaxExperts);

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
void gather_rows(Batch& batch, const arguments::gather_rows<X>& a) {
  batch.add(a.rows, a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      const uint64_t row = uint32_t(a.index[r]) / a.repeat;
      const bool known = a.index[r] >= 0 && row < a.x_rows;
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        const F32 v = known ? load_some(a.x + row * a.dim + i, count) : splat(__builtin_nanf(""));
        store_some(a.y + r * a.dim + i, v, count);
      });
    }
  });
}

template <typename B>
void add_expert_bias(Batch& batch, const arguments::add_expert_bias<B>& a) {
  const Slots slots(a);
  batch.add(a.rows, a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      const uint32_t place = a.order ? uint32_t(a.order[r]) : uint32_t(r);
      const int32_t number = slots.at(place < a.rows ? uint32_t(a.ids[place]) : a.experts);
      if (number < 0) continue;
      const B* bias = slots.has(number) ? a.bias + uint32_t(number) * a.bias_stride : nullptr;
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        const uint64_t at = r * a.dim + i;
        const F32 v =
            bias ? load_some(a.x + at, count) + load_some(bias + i, count) : splat(__builtin_nanf(""));
        store_some(a.y + at, v, count);
      });
    }
  });
}

void route(Batch& batch, const arguments::route& a) {
  const double each = double(a.experts) * (a.k + 3) * kRankTime;
  batch.add(a.tokens, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t)
      route_token(a.logits + t * a.experts, a.experts, a.k, a.normalize, a.ids + t * a.k,
                  a.weights + t * a.k);
  });
}

void moe_buckets(Batch&, const arguments::moe_buckets& a) {
  int32_t* offsets = a.offsets;
  // offsets[e] counts the rows of experts below e, then moves on as they are placed, then is put back.
  for (uint32_t e = 0; e <= a.experts; ++e) offsets[e] = 0;
  for (uint32_t i = 0; i < a.count; ++i) {
    const uint32_t id = least(uint32_t(a.ids[i]), a.experts);  // a negative id is a large one
    if (id < a.experts) ++offsets[id + 1];
  }
  for (uint32_t e = 0; e < a.experts; ++e) offsets[e + 1] += offsets[e];
  for (uint32_t i = 0; i < a.count; ++i) {
    const uint32_t id = least(uint32_t(a.ids[i]), a.experts);
    const int32_t row = offsets[id]++;
    if (uint32_t(row) < a.count) a.order[row] = int32_t(i);  // always, unless ids change meanwhile
    a.inverse[i] = id < a.experts ? row : -1;
  }
  for (uint32_t e = a.experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

void find_slots(Batch& batch, const arguments::find_slots& a) {
  auto* chosen = static_cast<uint8_t*>(batch.memory(a.experts));
  std::memset(chosen, 0, a.experts);
  for (uint32_t i = 0; i < a.choices; ++i) {
    const uint32_t id = uint32_t(a.ids[i]);  // a negative id is a large one
    if (id >= a.experts) continue;
    ++a.counts[id];
    chosen[id] = 1;
  }
  uint32_t missing = 0;
  for (uint32_t e = 0; e < a.experts; ++e) {
    missing += chosen[e] && a.table[e] < 0;
    a.slots[e] = a.table[e];
  }
  a.missing[0] = missing;
}

void moe_combine(Batch& batch, const arguments::moe_combine& a) {
  batch.add(a.tokens, a.dim * (a.k + 2) * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const F32 scale = a.shared_gate ? splat(sigmoid(splat(a.shared_gate[t]))[0]) : splat(1.0f);
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        F32 total = {};
        for (uint32_t c = 0; c < a.k; ++c) {
          const uint64_t row = t * a.k + c;
          total = fused(splat(a.weights[row]), load_some(a.expert_out + row * a.dim + i, count), total);
        }
        if (a.shared) total = fused(scale, load_some(a.shared + t * a.dim + i, count), total);
        store_some(a.y + t * a.dim + i, load_some(a.residual + t * a.dim + i, count) + total, count);
      });
    }
  });
}

}  // namespace

PYTURBO_BODIES(moe, PYTURBO_BODY(gather_rows), PYTURBO_BODY(add_expert_bias), PYTURBO_BODY(route),
               PYTURBO_BODY(moe_buckets), PYTURBO_BODY(find_slots), PYTURBO_BODY(moe_combine))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
