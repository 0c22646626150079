// Kernels that work value by value: shaders/elementwise and shaders/activation state what each computes.
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kSpan = 1024;    // values of an item
constexpr double kValueTime = 0.1;  // nanoseconds of one value
constexpr double kCurveTime = 0.5;  // nanoseconds of one value with an exponential

// y[i] = fn(a[i], b[i]) for the first two buffers and the third.
template <typename Fn>
void map_pairs(const FastLaunch& launch, double nanoseconds, const Fn& fn) {
  const float *a = launch.buffer<float>(0), *b = launch.buffer<float>(1);
  float* y = launch.buffer<float>(2);
  const uint64_t count = launch.value<uint32_t>(3);
  launch.batch.add((count + kSpan - 1) / kSpan, kSpan * nanoseconds, [=](uint64_t begin, uint64_t end) {
    const uint64_t first = begin * kSpan;
    const uint64_t last = least(end * kSpan, count);
    for_vectors(uint32_t(last - first), [&](uint32_t i, uint32_t part) {
      const uint64_t at = first + i;
      store_some(y + at, fn(load_some(a + at, part), load_some(b + at, part)), part);
    });
  });
}

template <typename B>
void run_add_bias(const FastLaunch& launch) {
  const float* x = launch.buffer<float>(0);
  const B* bias = launch.buffer<B>(1);
  float* y = launch.buffer<float>(2);
  const uint32_t dim = launch.value<uint32_t>(4);
  launch.batch.add(launch.value<uint32_t>(3), dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t start = begin * dim; start < end * dim; start += dim)
      for_vectors(dim, [&](uint32_t i, uint32_t part) {
        store_some(y + start + i, load_some(x + start + i, part) + load_some(bias + i, part), part);
      });
  });
}

}  // namespace

void add(const FastLaunch& launch) {
  map_pairs(launch, kValueTime, [](F32 a, F32 b) { return a + b; });
}
void swiglu(const FastLaunch& launch) {
  map_pairs(launch, kCurveTime, [](F32 gate, F32 up) { return silu(gate) * up; });
}
void swiglu_clamped(const FastLaunch& launch) {
  const F32 alpha = splat(launch.value<float>(4)), limit = splat(launch.value<float>(5));
  map_pairs(launch, kCurveTime, [=](F32 gate, F32 up) {
    const F32 g = gate > limit ? limit : gate;
    const F32 above = up < -limit ? -limit : up;
    const F32 u = above > limit ? limit : above;
    return g * sigmoid(alpha * g) * (u + 1.0f);
  });
}
void sigmoid_gate(const FastLaunch& launch) {
  map_pairs(launch, kCurveTime, [](F32 x, F32 gate) { return x * sigmoid(gate); });
}
void add_bias(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_add_bias, launch); }

void split_q_gate(const FastLaunch& launch) {
  const float* x = launch.buffer<float>(0);
  float *q = launch.buffer<float>(1), *gate = launch.buffer<float>(2);
  const uint64_t heads = uint64_t(launch.value<uint32_t>(3)) * launch.value<uint32_t>(4);
  const uint64_t dim = launch.value<uint32_t>(5);
  launch.batch.add(heads, double(dim) * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t head = begin; head < end; ++head) {
      copy_row(q + head * dim, x + head * 2 * dim, dim);
      copy_row(gate + head * dim, x + (head * 2 + 1) * dim, dim);
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
