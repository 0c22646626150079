// Rotary positions: shaders/rope states what the kernel computes.
#include <cmath>

#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr double kAngleTime = 20;  // nanoseconds of a sine and a cosine
constexpr double kPairTime = 0.5;  // nanoseconds to turn a pair

// Pairs (i, i + pairs) of one head.
void turn_halves(const float* x, const float* cosine, const float* sine, uint32_t pairs, float* y) {
  for_vectors(pairs, [&](uint32_t i, uint32_t count) {
    const F32 a = load_some(x + i, count), b = load_some(x + pairs + i, count);
    const F32 c = load_some(cosine + i, count), s = load_some(sine + i, count);
    store_some(y + i, a * c - b * s, count);
    store_some(y + pairs + i, b * c + a * s, count);
  });
}

// Pairs (2 i, 2 i + 1) of one head.
void turn_neighbours(const float* x, const float* cosine, const float* sine, uint32_t pairs, float* y) {
  for (uint32_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cosine[i] - b * sine[i];
    y[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace

void rope(const FastLaunch& launch) {
  const float *x = launch.buffer<float>(0), *inv_freq = launch.buffer<float>(1);
  float* y = launch.buffer<float>(2);
  const uint32_t tokens = launch.value<uint32_t>(3), heads = launch.value<uint32_t>(4),
                 dim = launch.value<uint32_t>(5);
  const uint32_t pairs = launch.value<uint32_t>(6), position = launch.value<uint32_t>(7);
  const float scale = launch.value<float>(8);
  const auto turn = launch.constant(0) ? turn_neighbours : turn_halves;
  const double each = pairs * kAngleTime + double(heads) * pairs * kPairTime;
  launch.batch.add(tokens, each, [=](uint64_t begin, uint64_t end) {
    float* cosine = static_cast<float*>(item_scratch(2 * sizeof(float) * pairs));
    float* sine = cosine + pairs;
    for (uint64_t t = begin; t < end; ++t) {
      for (uint32_t i = 0; i < pairs; ++i) {
        const float angle = float(position + uint32_t(t)) * inv_freq[i];
        cosine[i] = __builtin_cosf(angle) * scale;
        sine[i] = __builtin_sinf(angle) * scale;
      }
      for (uint32_t head = 0; head < heads; ++head) {
        const uint64_t start = (t * heads + head) * dim;
        turn(x + start, cosine, sine, pairs, y + start);
        if (y != x && 2 * pairs < dim)
          copy_row(y + start + 2 * pairs, x + start + 2 * pairs, dim - 2 * pairs);
      }
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
