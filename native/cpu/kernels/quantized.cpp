// Products with quantised weights: shaders/affine, shaders/fp and shaders/gguf specify the kernels. Those of
// small floats have an optional global scale instead of biases, and their group size is a template parameter.
#include "cpu/kernels/quantized.h"

#include "arguments/affine/affine_embed.h"
#include "arguments/affine/affine_experts_matvec.h"
#include "arguments/affine/affine_experts_swiglu.h"
#include "arguments/affine/affine_grouped_matmul.h"
#include "arguments/affine/affine_grouped_swiglu.h"
#include "arguments/affine/affine_matmul.h"
#include "arguments/affine/affine_matvec.h"
#include "arguments/affine/affine_swiglu.h"
#include "arguments/affine/affine_swiglu_matmul.h"
#include "arguments/fp/fp_embed.h"
#include "arguments/fp/fp_experts_matvec.h"
#include "arguments/fp/fp_experts_swiglu.h"
#include "arguments/fp/fp_grouped_matmul.h"
#include "arguments/fp/fp_grouped_swiglu.h"
#include "arguments/fp/fp_matmul.h"
#include "arguments/fp/fp_matvec.h"
#include "arguments/fp/fp_swiglu.h"
#include "arguments/fp/fp_swiglu_matmul.h"
#include "arguments/gguf/gguf_embed.h"
#include "arguments/gguf/gguf_experts_matvec.h"
#include "arguments/gguf/gguf_experts_swiglu.h"
#include "arguments/gguf/gguf_grouped_matmul.h"
#include "arguments/gguf/gguf_grouped_swiglu.h"
#include "arguments/gguf/gguf_matmul.h"
#include "arguments/gguf/gguf_matvec.h"
#include "arguments/gguf/gguf_swiglu.h"
#include "arguments/gguf/gguf_swiglu_matmul.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/slots.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

constexpr float kGlobalUnit = 448 * 6;  // shaders/fp/fp.h

Matrix Stack::at(uint64_t number) const {
  float factor = 1.0f;
  if (format.group > 0)
    factor = code_unit(format) * (global_scale ? global_scale[number * global_stride] / kGlobalUnit : 1.0f);
  return {packed + number * packed_stride,
          scales + number * scales_stride,
          biases ? biases + number * biases_stride : nullptr,
          format,
          factor,
          out,
          in,
          group_size};
}

namespace {

// A matrix [out, in] of small floats at the given places, with its global scale.
template <typename A>
Stack small_floats_at(const A& a, const uint32_t* packed, const uint8_t* scales, const float* global_scale,
                      uint32_t out, uint32_t in) {
  Stack stack = stack_at<SmallFloats>(a, packed, scales, static_cast<const uint8_t*>(nullptr), out, in);
  stack.global_scale = global_scale;
  return stack;
}

// The matrix [out, in] of a kernel, with its global scale where it has small floats.
template <typename F, typename A>
Stack scaled_stack_of(const A& a, uint32_t out, uint32_t in) {
  if constexpr (requires { a.global_scale; })
    return small_floats_at(a, a.packed, a.scales, a.global_scale, out, in);
  else
    return stack_of<F>(a, out, in);
}

// The stack with the distances between its matrices.
template <typename F, typename A>
Stack with_strides(Stack stack, const A& a) {
  if constexpr (kIsBlocks<F>) {
    stack.packed_stride = a.blocks_stride;
    return stack;
  } else {
    stack.packed_stride = a.packed_stride * sizeof(uint32_t);
    stack.scales_stride = a.scales_stride * stack.scale_bytes;
    if constexpr (F::kSmallFloats)
      stack.global_stride = a.global_stride;
    else
      stack.biases_stride = a.biases_stride * stack.scale_bytes;
    return stack;
  }
}

// The matrices of a product, or of the two products of a gated one; stacks of them where the kernel has
// strides.
struct Weights {
  Stack w, up;
  bool gated;

  template <typename F, typename A>
  Weights(F, const A& a) {
    if constexpr (requires { a.up_biases; }) {
      gated = true;
      w = stack_at<F>(a, a.gate_packed, a.gate_scales, a.gate_biases, a.out, a.in);
      up = stack_at<F>(a, a.up_packed, a.up_scales, a.up_biases, a.out, a.in);
    } else if constexpr (requires { a.up_scales; }) {
      gated = true;
      w = small_floats_at(a, a.gate_packed, a.gate_scales, a.gate_global_scale, a.out, a.in);
      up = small_floats_at(a, a.up_packed, a.up_scales, a.up_global_scale, a.out, a.in);
    } else if constexpr (requires { a.up; }) {
      gated = true;
      w = blocks_at(a, a.gate, a.out, a.in);
      up = blocks_at(a, a.up, a.out, a.in);
    } else {
      gated = false;
      w = up = scaled_stack_of<F>(a, a.out, a.in);
    }
    if constexpr (requires { a.matrices; }) {
      w = with_strides<F>(w, a);
      up = with_strides<F>(up, a);
    }
  }
};

// One product with x [tokens, in].
struct Single : Weights {
  const float* x;
  float* y;
  uint32_t tokens;

  template <typename F, typename A>
  Single(F family, const A& a) : Weights(family, a), x(a.x), y(a.y), tokens(a.tokens) {}

  Products products(Batch& batch) const {
    const Product product = {w.at(), up.at(), gated, true, 0, tokens, y};
    return {batch, w.format, 1, w.out, [=](uint64_t) { return product; }};
  }
};

void run_matvec(Batch& batch, const Single& p) {
  const Activations x = row_activations(batch, p.w.format, p.x, p.tokens, p.w.in, p.w.group_size);
  run_rows(batch, p.products(batch), x);
}

// Most tokens of a product for which tiles take longer than rows.
uint32_t most_tokens_in_rows(const Format& format) {
  if (!format.reader || kLanes < 8) return 7;
  return kFastIntegers && format.reader->group == 32 ? 7 : 11;
}

void run_matmul(Batch& batch, const Single& p) {
  if (p.tokens <= most_tokens_in_rows(p.w.format)) return run_matvec(batch, p);
  run_tiles(batch, p.products(batch), p.x, p.tokens);
}

// Products of the choices of all tokens.
struct Choices : Weights {
  Slots slots;
  const float* x;      // [tokens, x_rows, in]
  const int32_t* ids;  // [tokens, k]
  float* y;            // [tokens, k, out]
  uint32_t tokens, k, x_rows;

  template <typename F, typename A>
  Choices(F family, const A& a)
      : Weights(family, a),
        slots(a),
        x(a.x),
        ids(a.ids),
        y(a.y),
        tokens(a.tokens),
        k(a.k),
        x_rows(a.x_rows) {}

  Product at(uint64_t i) const {
    const int32_t number = slots.at(uint32_t(ids[i]));  // a negative id is a large one
    const bool known = slots.has(number);
    const uint64_t matrix = known ? number : 0;
    const Matrix own = w.at(matrix);
    const uint64_t row = i / k * x_rows + i % k % x_rows;
    return {own, gated ? up.at(matrix) : own, gated, known, row, number >= 0, y + i * w.out};
  }
};

void run_choices(Batch& batch, const Choices& c) {
  const uint64_t rows = uint64_t(c.tokens) * c.x_rows;
  const Activations x = row_activations(batch, c.w.format, c.x, rows, c.w.in, c.w.group_size);
  const Products products(batch, c.w.format, uint64_t(c.tokens) * c.k, c.w.out,
                          [=](uint64_t i) { return c.at(i); });
  run_rows(batch, products, x);
}

// Rows in the order of their experts.
struct Buckets : Weights {
  Slots slots;
  const float* x;          // [rows, in]
  const int32_t* offsets;  // [experts + 1]
  float* y;                // [rows, out]
  uint32_t rows;

  template <typename F, typename A>
  Buckets(F family, const A& a)
      : Weights(family, a), slots(a), x(a.x), offsets(a.offsets), y(a.y), rows(a.rows) {}

  struct Range {
    uint32_t begin, end;  // nothing unless begin < end
  };

  // The rows of expert `e` that are written, if they are few, or many.
  Range written(uint32_t e, bool few) const {
    if (slots.at(e) < 0) return {rows, 0};
    const Range own = {least(uint32_t(offsets[e]), rows), least(uint32_t(offsets[e + 1]), rows)};
    return own.begin < own.end && (own.end - own.begin <= most_tokens_in_rows(w.format)) == few
               ? own
               : Range{rows, 0};
  }

  // From the first to the last row that is written for experts with few rows, or with many.
  Range all_written(bool few) const {
    Range all = {rows, 0};
    for (uint32_t e = 0; e < slots.experts; ++e) {
      const Range own = written(e, few);
      if (own.begin >= own.end) continue;
      all = {least(all.begin, own.begin), all.end > own.end ? all.end : own.end};
    }
    return all;
  }

  // The product of expert `e`, which is empty unless it is one of those; activations start with row `first`.
  Product at(uint32_t e, uint32_t first, bool few) const {
    const Range range = written(e, few);
    const int32_t number = slots.at(e);
    const bool known = slots.has(number), any = range.begin < range.end;
    const uint64_t matrix = known ? number : 0;
    const Matrix own = w.at(matrix);
    return {own,
            gated ? up.at(matrix) : own,
            gated,
            known,
            any ? range.begin - first : 0,
            any ? range.end - range.begin : 0,
            y + uint64_t(range.begin) * w.out};
  }
};

// Experts with few rows have the products of single tokens, bit for bit. Which ones does not depend on the
// others, since a launch may have some of the experts only.
void run_buckets(Batch& batch, const Buckets& b) {
  for (const bool few : {true, false}) {
    const auto [first, last] = b.all_written(few);
    if (first >= last) continue;
    const float* x = b.x + uint64_t(first) * b.w.in;
    const Products products(batch, b.w.format, b.slots.experts, b.w.out,
                            [=](uint64_t e) { return b.at(uint32_t(e), first, few); });
    if (few)
      run_rows(batch, products, row_activations(batch, b.w.format, x, last - first, b.w.in, b.w.group_size));
    else
      run_tiles(batch, products, x, last - first);
  }
}

constexpr double kDequantizeTime = 0.5;  // nanoseconds of a value

void run_embed(Batch& batch, const Stack& stack, const int32_t* ids, uint32_t tokens, float* y) {
  const Matrix table = stack.at();
  const ReadValues values = values_of(stack.format);
  batch.add(tokens, table.in * kDequantizeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const uint32_t id = uint32_t(ids[t]);  // a negative id is a large one
      if (id < table.out)
        for (uint32_t i = 0; i < table.in; i += values.count)
          values.dequantize(table, id, i, y + t * table.in + i);
      else
        for (uint32_t i = 0; i < table.in; ++i) y[t * table.in + i] = __builtin_nanf("");
    }
  });
}

// From the arguments of a kernel of family F to one of the functions above.
template <typename F, typename A>
void matvec(Batch& batch, const A& a) {
  run_matvec(batch, Single(F{}, a));
}
template <typename F, typename A>
void matmul(Batch& batch, const A& a) {
  run_matmul(batch, Single(F{}, a));
}
template <typename F, typename A>
void experts(Batch& batch, const A& a) {
  run_choices(batch, Choices(F{}, a));
}
template <typename F, typename A>
void grouped(Batch& batch, const A& a) {
  run_buckets(batch, Buckets(F{}, a));
}
template <typename F, typename A>
void embed(Batch& batch, const A& a) {
  run_embed(batch, scaled_stack_of<F>(a, a.vocab, a.hidden), a.ids, a.tokens, a.y);
}

}  // namespace

PYTURBO_BODIES(
    quantized, PYTURBO_BODY(affine_matvec, matvec<Affine>), PYTURBO_BODY(affine_matmul, matmul<Affine>),
    PYTURBO_BODY(affine_swiglu, matvec<Affine>), PYTURBO_BODY(affine_swiglu_matmul, matmul<Affine>),
    PYTURBO_BODY(affine_experts_matvec, experts<Affine>),
    PYTURBO_BODY(affine_experts_swiglu, experts<Affine>),
    PYTURBO_BODY(affine_grouped_matmul, grouped<Affine>),
    PYTURBO_BODY(affine_grouped_swiglu, grouped<Affine>), PYTURBO_BODY(affine_embed, embed<Affine>),
    PYTURBO_BODY(fp_matvec, matvec<SmallFloats>), PYTURBO_BODY(fp_matmul, matmul<SmallFloats>),
    PYTURBO_BODY(fp_swiglu, matvec<SmallFloats>), PYTURBO_BODY(fp_swiglu_matmul, matmul<SmallFloats>),
    PYTURBO_BODY(fp_experts_matvec, experts<SmallFloats>),
    PYTURBO_BODY(fp_experts_swiglu, experts<SmallFloats>),
    PYTURBO_BODY(fp_grouped_matmul, grouped<SmallFloats>),
    PYTURBO_BODY(fp_grouped_swiglu, grouped<SmallFloats>), PYTURBO_BODY(fp_embed, embed<SmallFloats>),
    PYTURBO_BODY(gguf_matvec, matvec<Blocks>), PYTURBO_BODY(gguf_matmul, matmul<Blocks>),
    PYTURBO_BODY(gguf_swiglu, matvec<Blocks>), PYTURBO_BODY(gguf_swiglu_matmul, matmul<Blocks>),
    PYTURBO_BODY(gguf_experts_matvec, experts<Blocks>), PYTURBO_BODY(gguf_experts_swiglu, experts<Blocks>),
    PYTURBO_BODY(gguf_grouped_matmul, grouped<Blocks>), PYTURBO_BODY(gguf_grouped_swiglu, grouped<Blocks>),
    PYTURBO_BODY(gguf_embed, embed<Blocks>))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
