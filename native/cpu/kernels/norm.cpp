// Norms: shaders/norm states what each kernel computes.
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr double kValueTime = 0.15;  // nanoseconds of one value of a norm

float sum_squares(const float* x, uint32_t dim, float scale) {
  F32 total[2] = {};
  uint32_t i = 0;
  for (; i + 2 * kLanes <= dim; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (uint32_t part = 0; part < 2; ++part) {
      const F32 v = load_floats(x + i + part * kLanes) * scale;
      total[part] = fused(v, v, total[part]);
    }
  }
  for_vectors(dim - i, [&](uint32_t at, uint32_t count) {
    const F32 v = load_some(x + i + at, count) * scale;
    total[0] = fused(v, v, total[0]);
  });
  return sum(total[0] + total[1]);
}

// rsqrt(sum(x^2) / divisor + eps); squares that overflow are summed again at a scale where they cannot.
float inverse_norm(const float* x, uint32_t dim, float divisor, float eps) {
  const float total = sum_squares(x, dim, 1.0f);
  if (!__builtin_isinf(total)) return 1.0f / __builtin_sqrtf(total / divisor + eps);
  constexpr float kShrink = 0x1p-80f;
  return kShrink / __builtin_sqrtf(sum_squares(x, dim, kShrink) / divisor);
}

// y = x * inverse * weight.
template <typename W>
void scale_row(const float* x, float inverse, const W* weight, uint32_t dim, float* y) {
  for_vectors(dim, [&](uint32_t i, uint32_t count) {
    store_some(y + i, load_some(x + i, count) * inverse * load_some(weight + i, count), count);
  });
}

template <typename W>
void run_rms_norm(const FastLaunch& launch) {
  const float *x = launch.buffer<float>(0), *residual = launch.buffer<float>(3);
  const W* weight = launch.buffer<W>(1);
  float *y = launch.buffer<float>(2), *total = launch.buffer<float>(4);
  const uint32_t dim = launch.value<uint32_t>(6);
  const float eps = launch.value<float>(7);
  const bool has_residual = launch.constant(0);
  launch.batch.add(launch.value<uint32_t>(5), dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t start = begin * dim; start < end * dim; start += dim) {
      const float* v = x + start;
      if (has_residual) {
        for_vectors(dim, [&](uint32_t i, uint32_t count) {
          store_some(total + start + i, load_some(v + i, count) + load_some(residual + start + i, count),
                     count);
        });
        v = total + start;
      }
      scale_row(v, inverse_norm(v, dim, float(dim), eps), weight, dim, y + start);
    }
  });
}

template <typename W>
void run_head_rms_norm(const FastLaunch& launch) {
  float* x = launch.buffer<float>(0);
  const W* weight = launch.buffer<W>(1);
  const uint64_t heads = uint64_t(launch.value<uint32_t>(2)) * launch.value<uint32_t>(3);
  const uint32_t dim = launch.value<uint32_t>(4);
  const float eps = launch.value<float>(5);
  launch.batch.add(heads, dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t start = begin * dim; start < end * dim; start += dim)
      scale_row(x + start, inverse_norm(x + start, dim, float(dim), eps), weight, dim, x + start);
  });
}

template <typename W>
void run_gated_rms_norm(const FastLaunch& launch) {
  const float *x = launch.buffer<float>(0), *z = launch.buffer<float>(1);
  const W* weight = launch.buffer<W>(2);
  float* y = launch.buffer<float>(3);
  const uint64_t heads = uint64_t(launch.value<uint32_t>(4)) * launch.value<uint32_t>(5);
  const uint32_t dim = launch.value<uint32_t>(6);
  const float eps = launch.value<float>(7);
  launch.batch.add(heads, 4 * dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t start = begin * dim; start < end * dim; start += dim) {
      const float inverse = inverse_norm(x + start, dim, float(dim), eps);
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        const F32 gate = silu(load_some(z + start + i, count));
        const F32 v = load_some(x + start + i, count) * inverse * load_some(weight + i, count) * gate;
        store_some(y + start + i, v, count);
      });
    }
  });
}

}  // namespace

void rms_norm(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_rms_norm, launch); }
void head_rms_norm(const FastLaunch& launch) {
  PYTURBO_BY_TYPE(launch.format.type, run_head_rms_norm, launch);
}
void gated_rms_norm(const FastLaunch& launch) {
  PYTURBO_BY_TYPE(launch.format.type, run_gated_rms_norm, launch);
}

void qk_norm(const FastLaunch& launch) {
  const uint64_t tokens = launch.value<uint32_t>(2), heads = launch.value<uint32_t>(3);
  const uint32_t dim = launch.value<uint32_t>(4), stride = launch.value<uint32_t>(5);
  const float eps = launch.value<float>(6), query_scale = 1.0f / __builtin_sqrtf(float(dim));
  launch.batch.add(2 * tokens * heads, dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t index = begin; index < end; ++index) {
      const bool is_query = index < tokens * heads;
      const uint64_t head = is_query ? index : index - tokens * heads;
      float* x = launch.buffer<float>(is_query ? 0 : 1) + head / heads * stride + head % heads * dim;
      const float inverse = inverse_norm(x, dim, 1.0f, eps) * (is_query ? query_scale : 1.0f);
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        store_some(x + i, load_some(x + i, count) * inverse, count);
      });
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
