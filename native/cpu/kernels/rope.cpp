// Rotary positions: shaders/rope specifies the kernel.
#include <cmath>

#include "arguments/rope/rope.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
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

void rope(Batch& batch, const arguments::rope& a) {
  const auto turn = a.interleaved ? turn_neighbours : turn_halves;
  const double each = a.pairs * kAngleTime + double(a.heads) * a.pairs * kPairTime;
  batch.add(a.tokens, each, [=](uint64_t begin, uint64_t end) {
    float* cosine = static_cast<float*>(item_scratch(2 * sizeof(float) * a.pairs));
    float* sine = cosine + a.pairs;
    for (uint64_t t = begin; t < end; ++t) {
      for (uint32_t i = 0; i < a.pairs; ++i) {
        const float angle = float(a.position + uint32_t(t)) * a.inv_freq[i];
        cosine[i] = __builtin_cosf(angle) * a.scale;
        sine[i] = __builtin_sinf(angle) * a.scale;
      }
      for (uint32_t head = 0; head < a.heads; ++head) {
        const uint64_t start = (t * a.heads + head) * a.dim, rest = start + 2 * a.pairs;
        turn(a.x + start, cosine, sine, a.pairs, a.y + start);
        if (a.y != a.x && 2 * a.pairs < a.dim) copy_row(a.y + rest, a.x + rest, a.dim - 2 * a.pairs);
      }
    }
  });
}

}  // namespace

PYTURBO_BODIES(rope, PYTURBO_BODY(rope))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
