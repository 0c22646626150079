// Norms: shaders/norm specifies each kernel.
#include "arguments/norm/gated_rms_norm.h"
#include "arguments/norm/head_rms_norm.h"
#include "arguments/norm/qk_norm.h"
#include "arguments/norm/rms_norm.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
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
void rms_norm(Batch& batch, const arguments::rms_norm<W>& a) {
  batch.add(a.tokens, a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    const uint32_t dim = a.dim;
    for (uint64_t start = begin * dim; start < end * dim; start += dim) {
      const float* v = a.x + start;
      if (a.has_residual) {
        for_vectors(dim, [&](uint32_t i, uint32_t count) {
          store_some(a.sum + start + i, load_some(v + i, count) + load_some(a.residual + start + i, count),
                     count);
        });
        v = a.sum + start;
      }
      scale_row(v, inverse_norm(v, dim, float(dim), a.eps), a.weight, dim, a.y + start);
    }
  });
}

template <typename W>
void head_rms_norm(Batch& batch, const arguments::head_rms_norm<W>& a) {
  batch.add(uint64_t(a.tokens) * a.heads, a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    const uint32_t dim = a.dim;
    for (uint64_t start = begin * dim; start < end * dim; start += dim)
      scale_row(a.x + start, inverse_norm(a.x + start, dim, float(dim), a.eps), a.weight, dim, a.y + start);
  });
}

template <typename W>
void gated_rms_norm(Batch& batch, const arguments::gated_rms_norm<W>& a) {
  batch.add(uint64_t(a.tokens) * a.heads, 4 * a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    const uint32_t dim = a.dim;
    for (uint64_t start = begin * dim; start < end * dim; start += dim) {
      const float inverse = inverse_norm(a.x + start, dim, float(dim), a.eps);
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        const F32 gate = silu(load_some(a.z + start + i, count));
        const F32 v = load_some(a.x + start + i, count) * inverse * load_some(a.weight + i, count) * gate;
        store_some(a.y + start + i, v, count);
      });
    }
  });
}

void qk_norm(Batch& batch, const arguments::qk_norm& a) {
  const uint64_t rows = uint64_t(a.tokens) * a.heads;
  const float query_scale = 1.0f / __builtin_sqrtf(float(a.dim));
  batch.add(2 * rows, a.dim * kValueTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t index = begin; index < end; ++index) {
      const bool is_query = index < rows;
      const uint64_t head = is_query ? index : index - rows;
      const float* x = (is_query ? a.q : a.k) + head / a.heads * a.stride + head % a.heads * a.dim;
      float* y = (is_query ? a.q_out : a.k_out) + head * a.dim;
      const float inverse = inverse_norm(x, a.dim, 1.0f, a.eps) * (is_query ? query_scale : 1.0f);
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        store_some(y + i, load_some(x + i, count) * inverse, count);
      });
    }
  });
}

}  // namespace

PYTURBO_BODIES(norm, PYTURBO_BODY(rms_norm), PYTURBO_BODY(head_rms_norm), PYTURBO_BODY(gated_rms_norm),
               PYTURBO_BODY(qk_norm))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
