// Kernels that work value by value: shaders/elementwise and shaders/activation specify them.
#include "arguments/activation/sigmoid_gate.h"
#include "arguments/activation/swiglu.h"
#include "arguments/activation/swiglu_clamped.h"
#include "arguments/elementwise/add.h"
#include "arguments/elementwise/add_bias.h"
#include "arguments/elementwise/split_q_gate.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kSpan = 1024;    // values of an item
constexpr double kValueTime = 0.1;  // nanoseconds of one value
constexpr double kCurveTime = 0.5;  // nanoseconds of one value with an exponential

// y[i] = fn(a[i], b[i]) for all i < count.
template <typename Fn>
void map_pairs(Batch& batch, const float* a, const float* b, float* y, uint64_t count, double nanoseconds,
               const Fn& fn) {
  batch.add((count + kSpan - 1) / kSpan, kSpan * nanoseconds, [=](uint64_t begin, uint64_t end) {
    const uint64_t first = begin * kSpan;
    const uint64_t last = least(end * kSpan, count);
    for_vectors(uint32_t(last - first), [&](uint32_t i, uint32_t part) {
      const uint64_t at = first + i;
      store_some(y + at, fn(load_some(a + at, part), load_some(b + at, part)), part);
    });
  });
}

void add(Batch& batch, const arguments::add& a) {
  map_pairs(batch, a.a, a.b, a.y, a.count, kValueTime, [](F32 x, F32 y) { return x + y; });
}

void swiglu(Batch& batch, const arguments::swiglu& a) {
  map_pairs(batch, a.gate, a.up, a.y, a.count, kCurveTime, [](F32 gate, F32 up) { return silu(gate) * up; });
}

void swiglu_clamped(Batch& batch, const arguments::swiglu_clamped& a) {
  const F32 alpha = splat(a.alpha), limit = splat(a.limit);
  map_pairs(batch, a.gate, a.up, a.y, a.count, kCurveTime, [=](F32 gate, F32 up) {
    const F32 g = gate > limit ? limit : gate;
    const F32 above = up < -limit ? -limit : up;
    const F32 u = above > limit ? limit : above;
    return g * sigmoid(alpha * g) * (u + 1.0f);
  });
}

void sigmoid_gate(Batch& batch, const arguments::sigmoid_gate& a) {
  map_pairs(batch, a.x, a.gate, a.y, a.count, kCurveTime, [](F32 x, F32 gate) { return x * sigmoid(gate); });
}

template <typename B>
void add_bias(Batch& batch, const arguments::add_bias<B>& a) {
  batch.add(a.rows, a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t start = begin * a.dim; start < end * a.dim; start += a.dim)
      for_vectors(a.dim, [&](uint32_t i, uint32_t part) {
        store_some(a.y + start + i, load_some(a.x + start + i, part) + load_some(a.bias + i, part), part);
      });
  });
}

void split_q_gate(Batch& batch, const arguments::split_q_gate& a) {
  const uint64_t heads = uint64_t(a.tokens) * a.heads, dim = a.dim;
  batch.add(heads, double(dim) * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t head = begin; head < end; ++head) {
      copy_row(a.q + head * dim, a.x + head * 2 * dim, a.dim);
      copy_row(a.gate + head * dim, a.x + (head * 2 + 1) * dim, a.dim);
    }
  });
}

}  // namespace

PYTURBO_BODIES(elementwise, PYTURBO_BODY(add), PYTURBO_BODY(swiglu), PYTURBO_BODY(swiglu_clamped),
               PYTURBO_BODY(sigmoid_gate), PYTURBO_BODY(add_bias), PYTURBO_BODY(split_q_gate))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
