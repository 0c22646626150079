// Rows of a compressed cache: shaders/turboquant specifies each kernel.
#include "arguments/turboquant/hadamard.h"
#include "arguments/turboquant/turbo_decode.h"
#include "arguments/turboquant/turbo_encode.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/turbo_rotation.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr double kRotateTime = 1.0;  // nanoseconds of one value
constexpr double kEncodeTime = 3.0;
constexpr double kDecodeTime = 0.2;
constexpr float kLeastNorm = 1e-8f;
static_assert(arguments::turbo_decode::kMaxDim <= kMaxDim);

template <typename T>
void hadamard(Batch& batch, const arguments::hadamard<T>& a) {
  const float factor = 1.0f / __builtin_sqrtf(float(a.dim));
  batch.add(a.rows, a.dim * kRotateTime, [=](uint64_t begin, uint64_t end) {
    alignas(64) float row[kMaxDim];
    for (uint64_t r = begin; r < end; ++r) {
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        F32 v = load_some(a.x + r * a.dim + i, count);
        if (a.signs && !a.inverse) v *= load_some(a.signs + i, count);
        store_some(row + i, v, count);
      });
      hadamard_row(row, a.dim, a.inverse);
      for_vectors(a.dim, [&](uint32_t i, uint32_t count) {
        F32 v = load_some(row + i, count) * factor;
        if (a.signs && a.inverse) v *= load_some(a.signs + i, count);
        store_some(a.y + r * a.dim + i, v, count);
      });
    }
  });
}

template <uint32_t bits>
void encode_row(const arguments::turbo_encode& a, uint64_t index) {
  const uint64_t sequence = index / (uint64_t(a.tokens) * a.kv_heads);
  const uint32_t in_sequence = uint32_t(index % (uint64_t(a.tokens) * a.kv_heads));
  if (a.tokens - in_sequence / a.kv_heads > a.capacity) return;  // a later one takes its row
  const float* x = a.x + index * a.dim;
  const uint32_t dim = a.dim;
  alignas(64) float row[kMaxDim];
  for (uint32_t i = 0; i < dim; i += kLanes) {
    const F32 v = load_floats(x + i);
    store_floats(row + i, a.signs ? v * load_floats(a.signs + i) : v);
  }
  if (a.signs) hadamard_row(row, dim, false);
  const float root = __builtin_sqrtf(float(dim)), factor = a.signs ? 1.0f / root : 1.0f;
  const uint32_t token = in_sequence / a.kv_heads, head = in_sequence % a.kv_heads;
  if (a.recent_rows && a.tokens - token <= a.recent) {
    const uint32_t slot = uint32_t(a.position + token) % a.recent;
    Half* exact = a.recent_rows + ((sequence * a.kv_heads + head) * a.recent + slot) * dim;
    for (uint32_t i = 0; i < dim; i += kLanes) store_floats(exact + i, load_floats(row + i) * factor);
    if (sequence == 0 && head == 0) a.recent_keys[slot] = uint32_t(a.position + token);
  }
  float mean = 0;
  if (a.ones) {
    F32 sums = {};
    for (uint32_t i = 0; i < dim; i += kLanes)
      sums = fused(load_floats(row + i) * factor, load_floats(a.ones + i), sums);
    mean = sum(sums) / float(dim);
  }
  F32 squares = {};
  I32 most = {};
  for (uint32_t i = 0; i < dim; i += kLanes) {
    F32 v = load_floats(row + i) * factor;
    if (a.ones) v = fused(splat(-mean), load_floats(a.ones + i), v);
    store_floats(row + i, v);
    squares = fused(v, v, squares);
    most = larger(most, magnitude(v));
  }
  const float norm = __builtin_sqrtf(sum(squares));
  const float factor_of_codes =
      bits == 8 ? kMostByteSteps / __builtin_bit_cast(float, largest(most)) : root / norm;
  const F32 inverse = splat(norm > kLeastNorm ? factor_of_codes : 0.0f);

  int32_t codes[kMaxDim];
  F32 decoded = {};
  for (uint32_t i = 0; i < dim; i += kLanes) {
    const I32 code = nearest<bits>(load_floats(row + i) * inverse);
    store_vector(codes + i, code);
    const F32 value = centroids_of<bits>((U32)code);
    decoded = fused(value, value, decoded);
  }

  const uint32_t slot = uint32_t(a.position + token) % a.capacity;
  const uint64_t target = (sequence * a.kv_heads + head) * a.capacity + slot;
  uint32_t* packed = a.packed + target * row_words(dim, bits);
  uint64_t stream = 0;
  uint32_t held = 0;
  for (uint32_t i = 0; i < dim; ++i) {
    stream |= uint64_t(uint32_t(codes[i]) % (1u << bits)) << held;
    held += bits;
    if (held < 32) continue;
    *packed++ = uint32_t(stream);
    stream >>= 32;
    held -= 32;
  }
  if (held > 0) *packed = uint32_t(stream);
  const float length = __builtin_sqrtf(sum(decoded)) * code_unit(bits);
  store_some(a.scales + target, splat(length > 0 ? norm / length : norm), 1);
  if (a.means) store_some(a.means + target, splat(mean), 1);
}

template <uint32_t bits>
void encode_rows(Batch& batch, const arguments::turbo_encode& a) {
  const uint64_t rows = uint64_t(a.batch) * a.tokens * a.kv_heads;
  batch.add(rows, a.dim * kEncodeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t index = begin; index < end; ++index) encode_row<bits>(a, index);
  });
}

template <uint32_t bits>
void decode_rows(Batch& batch, const arguments::turbo_decode& a) {
  const uint32_t words = row_words(a.dim, bits);
  const uint64_t rows = uint64_t(a.batch) * a.context * a.kv_heads;
  batch.add(rows, a.dim * kDecodeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t index = begin; index < end; ++index) {
      const uint64_t head = index % a.kv_heads, token = index / a.kv_heads % a.context;
      const uint64_t sequence = index / a.kv_heads / a.context;
      const uint64_t row = (sequence * a.kv_heads + head) * a.capacity + (a.ring_start + token) % a.capacity;
      const F32 factor = splat(load_float(a.scales + row) * code_unit(bits));
      for (uint32_t i = 0; i < a.dim; i += kLanes) {
        F32 v = centroids_at<bits>(a.packed + row * words, i) * factor;
        if (a.means) v = fused(splat(load_float(a.means + row)), load_floats(a.ones + i), v);
        store_floats(a.y + index * a.dim + i, v);
      }
    }
  });
}

void turbo_encode(Batch& batch, const arguments::turbo_encode& a) {
  PYTURBO_BY_WIDTH(a.bits, encode_rows, batch, a);
}

void turbo_decode(Batch& batch, const arguments::turbo_decode& a) {
  PYTURBO_BY_WIDTH(a.bits, decode_rows, batch, a);
}

}  // namespace

PYTURBO_BODIES(turbo_codec, PYTURBO_BODY(hadamard), PYTURBO_BODY(turbo_encode), PYTURBO_BODY(turbo_decode))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
