// Rows of a compressed cache: shaders/turboquant states what each kernel computes.
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"
#include "cpu/kernels/turbo_launch.h"
#include "cpu/kernels/turbo_rotation.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr double kRotateTime = 1.0;  // nanoseconds of one value
constexpr double kEncodeTime = 3.0;
constexpr double kDecodeTime = 0.2;
constexpr float kLeastNorm = 1e-8f;

template <typename T>
void run_hadamard(const FastLaunch& launch) {
  const T* x = launch.buffer<T>(0);
  T* y = launch.buffer<T>(2);
  const uint32_t dim = launch.value<uint32_t>(4);
  const float* signs = launch.constant(0) ? launch.buffer<float>(1) : nullptr;
  const bool inverse = launch.constant(1);
  const float factor = 1.0f / __builtin_sqrtf(float(dim));
  launch.batch.add(launch.value<uint32_t>(3), dim * kRotateTime, [=](uint64_t begin, uint64_t end) {
    alignas(64) float row[kMaxDim];
    for (uint64_t r = begin; r < end; ++r) {
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        F32 v = load_some(x + r * dim + i, count);
        if (signs && !inverse) v *= load_some(signs + i, count);
        store_some(row + i, v, count);
      });
      hadamard_row(row, dim, inverse);
      for_vectors(dim, [&](uint32_t i, uint32_t count) {
        F32 v = load_some(row + i, count) * factor;
        if (signs && inverse) v *= load_some(signs + i, count);
        store_some(y + r * dim + i, v, count);
      });
    }
  });
}

// A launch of turbo_encode.
struct Encode {
  const float *x, *signs, *ones;
  uint32_t* packed;
  float *norms, *means;
  uint32_t tokens, capacity, kv_heads, dim, position, words;
};

template <uint32_t bits>
void encode_row(const Encode& a, uint64_t index) {
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
  float mean = 0;
  if (a.ones) {
    F32 sums = {};
    for (uint32_t i = 0; i < dim; i += kLanes)
      sums = fused(load_floats(row + i) * factor, load_floats(a.ones + i), sums);
    mean = sum(sums) / float(dim);
  }
  F32 squares = {};
  for (uint32_t i = 0; i < dim; i += kLanes) {
    F32 v = load_floats(row + i) * factor;
    if (a.ones) v = fused(splat(-mean), load_floats(a.ones + i), v);
    store_floats(row + i, v);
    squares = fused(v, v, squares);
  }
  const float norm = __builtin_sqrtf(sum(squares));
  const F32 inverse = splat(norm > kLeastNorm ? root / norm : 0.0f);

  int32_t codes[kMaxDim];
  F32 decoded = {};
  for (uint32_t i = 0; i < dim; i += kLanes) {
    const I32 code = nearest<bits>(load_floats(row + i) * inverse);
    store_vector(codes + i, code);
    const F32 value = lookup<bits>((U32)code);
    decoded = fused(value, value, decoded);
  }

  const uint32_t slot = uint32_t(a.position + in_sequence / a.kv_heads) % a.capacity;
  const uint64_t target = (sequence * a.kv_heads + in_sequence % a.kv_heads) * a.capacity + slot;
  uint32_t* packed = a.packed + target * a.words;
  uint64_t stream = 0;
  uint32_t held = 0;
  for (uint32_t i = 0; i < dim; ++i) {
    stream |= uint64_t(uint32_t(codes[i])) << held;
    held += bits;
    if (held < 32) continue;
    *packed++ = uint32_t(stream);
    stream >>= 32;
    held -= 32;
  }
  if (held > 0) *packed = uint32_t(stream);
  a.norms[target] = norm * root / __builtin_sqrtf(sum(decoded));
  if (a.means) a.means[target] = mean;
}

template <uint32_t bits>
void run_encode(const FastLaunch& launch, const Encode& a, uint64_t rows) {
  launch.batch.add(rows, a.dim * kEncodeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t index = begin; index < end; ++index) encode_row<bits>(a, index);
  });
}

// A launch of turbo_decode.
struct Decode {
  const uint32_t* packed;
  const float *norms, *means, *ones;
  float* y;
  uint32_t context, capacity, ring_start, kv_heads, dim, words;
};

template <uint32_t bits>
void run_decode(const FastLaunch& launch, const Decode& a, uint64_t rows) {
  launch.batch.add(rows, a.dim * kDecodeTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t index = begin; index < end; ++index) {
      const uint64_t head = index % a.kv_heads, token = index / a.kv_heads % a.context;
      const uint64_t sequence = index / a.kv_heads / a.context;
      const uint64_t row = (sequence * a.kv_heads + head) * a.capacity + (a.ring_start + token) % a.capacity;
      const F32 factor = splat(a.norms[row] / __builtin_sqrtf(float(a.dim)));
      for (uint32_t i = 0; i < a.dim; i += kLanes) {
        F32 v = centroids_at<bits>(a.packed + row * a.words, i) * factor;
        if (a.means) v = fused(splat(a.means[row]), load_floats(a.ones + i), v);
        store_floats(a.y + index * a.dim + i, v);
      }
    }
  });
}

}  // namespace

void hadamard(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_hadamard, launch); }

void turbo_encode(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t bits = width_constant(launch, 0), dim = value(10);
  const bool rotates = launch.constant(1), has_means = launch.constant(2);
  const Encode a = {launch.buffer<float>(0),
                    rotates ? launch.buffer<float>(1) : nullptr,
                    has_means ? launch.buffer<float>(2) : nullptr,
                    launch.buffer<uint32_t>(3),
                    launch.buffer<float>(4),
                    has_means ? launch.buffer<float>(5) : nullptr,
                    value(7),
                    value(8),
                    value(9),
                    dim,
                    value(11),
                    row_words(dim, bits)};
  const uint64_t rows = uint64_t(value(6)) * a.tokens * a.kv_heads;
  PYTURBO_BY_WIDTH(bits, run_encode, launch, a, rows);
}

void turbo_decode(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t bits = width_constant(launch, 0), dim = value(10);
  const bool has_means = launch.constant(1);
  const Decode a = {launch.buffer<uint32_t>(0),
                    launch.buffer<float>(1),
                    has_means ? launch.buffer<float>(2) : nullptr,
                    has_means ? launch.buffer<float>(3) : nullptr,
                    launch.buffer<float>(4),
                    value(6),
                    value(7),
                    value(8),
                    value(9),
                    dim,
                    row_words(dim, bits)};
  const uint64_t rows = uint64_t(value(5)) * a.context * a.kv_heads;
  PYTURBO_BY_WIDTH(bits, run_decode, launch, a, rows);
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
