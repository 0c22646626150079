// Folded projections of latent attention: shaders/mla specifies each kernel.
#include "arguments/mla/mla_affine_project.h"
#include "arguments/mla/mla_dense_project.h"
#include "arguments/mla/mla_fp_project.h"
#include "arguments/mla/mla_gguf_project.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/quantized.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kColumns = 256;       // of an item: a multiple of what is made floats at a time
constexpr double kDequantizeTime = 0.3;  // nanoseconds of a value
constexpr double kProductTime = 0.06;    // nanoseconds of one product

// A quantised projection: the heads' matrices and vectors.
struct Heads {
  Stack w;
  const float* x;  // [tokens, heads, in]
  float* y;        // [tokens, heads, out]
  uint32_t tokens, heads, in, out;

  // The matrix of a head has `rows` rows of `columns` values, and starts at row head * stride + first.
  template <typename F, typename A>
  Heads(F, const A& a, uint32_t rows, uint32_t columns)
      : w(stack_of<F>(a, rows, columns)),
        x(a.x),
        y(a.y),
        tokens(a.tokens),
        heads(a.heads),
        in(a.in),
        out(a.out) {
    const uint64_t row_bytes = w.at().row_bytes;
    const uint64_t group_bytes = uint64_t(columns / w.group_size) * w.scale_bytes;
    w.packed_stride = a.stride * row_bytes;
    w.scales_stride = w.biases_stride = a.stride * group_bytes;
    w.packed += a.first * row_bytes;
    w.scales += a.first * group_bytes;
    if (w.biases) w.biases += a.first * group_bytes;
  }
};

void run_project(Batch& batch, const Heads& h) {
  const uint64_t rows = uint64_t(h.tokens) * h.heads;
  const Products products(batch, h.w.format, rows, h.out, [=](uint64_t i) -> Product {
    const Matrix w = h.w.at(i % h.heads);
    return {w, w, false, true, i, 1, h.y + i * h.out};
  });
  run_rows(batch, products, row_activations(batch, h.w.format, h.x, rows, h.in, h.w.group_size));
}

// Columns [begin, end) of W^T x for one head of every token.
void add_rows(const Heads& h, const ReadValues& format, uint64_t head, uint32_t begin, uint32_t end) {
  const Matrix w = h.w.at(head);
  const float* x = h.x + head * h.in;
  float* y = h.y + head * h.out;
  for (uint32_t t = 0; t < h.tokens; ++t) clear_row(y + uint64_t(t) * h.heads * h.out + begin, end - begin);
  for (uint32_t r = 0; r < h.in; ++r)
    for (uint32_t at = begin; at < end; at += format.count) {
      float values[kColumns];
      format.dequantize(w, r, at, values);
      for (uint32_t t = 0; t < h.tokens; ++t) {
        const F32 factor = splat(x[uint64_t(t) * h.heads * h.in + r]);
        float* sums = y + uint64_t(t) * h.heads * h.out + at;
        for (uint32_t i = 0; i < format.count; i += kLanes)
          store_floats(sums + i, fused(load_floats(values + i), factor, load_floats(sums + i)));
      }
    }
}

void run_project_transposed(Batch& batch, const Heads& h) {
  const uint32_t parts = (h.out + kColumns - 1) / kColumns;
  const ReadValues format = values_of(h.w.format);
  const double each = h.in * double(kColumns) * (kDequantizeTime + h.tokens * kProductTime);
  batch.add(uint64_t(h.heads) * parts, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t first = uint32_t(item % parts) * kColumns;
      add_rows(h, format, item / parts, first, least(first + kColumns, h.out));
    }
  });
}

template <typename F, typename A>
void project(Batch& batch, const A& a) {
  run_project(batch, Heads(F{}, a, a.out, a.in));
}
template <typename F, typename A>
void project_transposed(Batch& batch, const A& a) {
  run_project_transposed(batch, Heads(F{}, a, a.in, a.out));
}

template <typename W>
void mla_dense_project(Batch& batch, const arguments::mla_dense_project<W>& a) {
  const double each = double(a.in) * a.out * kProductTime;
  batch.add(uint64_t(a.tokens) * a.heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const float* x = a.x + item * a.in;
      const W* w = a.weight + (item % a.heads * a.stride + a.first) * a.in;
      for (uint32_t r = 0; r < a.out; ++r, w += a.in) {
        F32 sums = {};
        for_vectors(a.in, [&](uint32_t i, uint32_t count) {
          sums = fused(load_some(w + i, count), load_some(x + i, count), sums);
        });
        a.y[item * a.out + r] = sum(sums);
      }
    }
  });
}

template <typename W>
void mla_dense_project_transposed(Batch& batch, const arguments::mla_dense_project_transposed<W>& a) {
  const double each = double(a.in) * a.out * kProductTime;
  batch.add(uint64_t(a.tokens) * a.heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const float* x = a.x + item * a.in;
      const W* w = a.weight + (item % a.heads * a.stride + a.first) * a.out;
      float* y = a.y + item * a.out;
      clear_row(y, a.out);
      for (uint32_t r = 0; r < a.in; ++r, w += a.out)
        for_vectors(a.out, [&](uint32_t i, uint32_t count) {
          store_some(y + i, fused(load_some(w + i, count), splat(x[r]), load_some(y + i, count)), count);
        });
    }
  });
}

}  // namespace

PYTURBO_BODIES(mla_project, PYTURBO_BODY(mla_affine_project, project<Affine>),
               PYTURBO_BODY(mla_fp_project, project<SmallFloats>),
               PYTURBO_BODY(mla_affine_project_transposed, project_transposed<Affine>),
               PYTURBO_BODY(mla_fp_project_transposed, project_transposed<SmallFloats>),
               PYTURBO_BODY(mla_gguf_project, project<Blocks>),
               PYTURBO_BODY(mla_gguf_project_transposed, project_transposed<Blocks>),
               PYTURBO_BODY(mla_dense_project), PYTURBO_BODY(mla_dense_project_transposed))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
