// The delta net: shaders/delta states what each kernel computes.
#include "cpu/kernels/delta_head.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/families.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kPast = 3;           // rows of the history
constexpr uint32_t kChannels = 4 * 16;  // channels of an item
constexpr uint32_t kRowBlock = 4;       // state rows of an item
constexpr double kTapTime = 1.0;        // nanoseconds of one output of the convolution
constexpr double kStateTime = 0.15;     // nanoseconds of one value of the state and token
constexpr double kGateTime = 60;        // nanoseconds of the two gates of a head

// The channels [first, first + count) of all tokens, then of the history.
template <typename W>
void convolve(const FastLaunch& launch, uint32_t first, uint32_t count) {
  const float* x = launch.buffer<float>(0);
  float *history = launch.buffer<float>(1), *y = launch.buffer<float>(3);
  const W* weight = launch.buffer<W>(2);
  const uint64_t tokens = launch.value<uint32_t>(4), channels = launch.value<uint32_t>(5);
  for_vectors(count, [&](uint32_t i, uint32_t part) {
    const uint64_t c = first + i;
    float taps[4][kLanes] = {};
    W four[4][kLanes] = {};
    for (uint32_t l = 0; l < part; ++l)
      for (uint32_t j = 0; j < 4; ++j) four[j][l] = weight[(c + l) * 4 + j];
    for (uint32_t j = 0; j < 4; ++j) store_floats(taps[j], load_floats(four[j]));
    F32 u[4] = {};
    for (uint32_t j = 0; j < kPast; ++j) u[j + 1] = load_some(history + j * channels + c, part);
    for (uint64_t t = 0; t < tokens; ++t) {
      u[0] = u[1];
      u[1] = u[2];
      u[2] = u[3];
      u[3] = load_some(x + t * channels + c, part);
      F32 sum = load_floats(taps[0]) * u[0];
#pragma GCC unroll 3
      for (uint32_t j = 1; j < 4; ++j) sum = fused(load_floats(taps[j]), u[j], sum);
      store_some(y + t * channels + c, silu(sum), part);
    }
    for (uint32_t j = 0; j < kPast; ++j) store_some(history + j * channels + c, u[j + 1], part);
  });
}

template <typename W>
void run_conv1d(const FastLaunch& launch) {
  const uint32_t tokens = launch.value<uint32_t>(4), channels = launch.value<uint32_t>(5);
  const uint64_t items = (channels + kChannels - 1) / kChannels;
  launch.batch.add(items, double(tokens) * kChannels * kTapTime, [=](uint64_t begin, uint64_t end) {
    const uint32_t first = uint32_t(begin) * kChannels;
    convolve<W>(launch, first, uint32_t(least(end * kChannels, uint64_t(channels))) - first);
  });
}

// Value i of an array of any float type.
float value_at(const FastLaunch& launch, uint32_t argument, uint32_t i) {
  const void* data = launch.arguments.buffers[argument];
  switch (launch.info.arguments[argument].dtype) {
    case DType::f16:
      return load_floats(static_cast<const Half*>(data) + i, 1, 1)[0];
    case DType::bf16:
      return load_floats(static_cast<const BFloat*>(data) + i, 1, 1)[0];
    default:
      return static_cast<const float*>(data)[i];
  }
}

// log(1 + e^x) = max(x, 0) + log(1 + u), u = e^-|x|.
float softplus(float x) {
  return (x > 0 || x != x ? x : 0.0f) + __builtin_log1pf(__builtin_expf(-__builtin_fabsf(x)));
}

// State rows [first, first + rows) of one head, token by token.
template <uint32_t rows>
void update_rows(const DeltaHead& h, uint32_t first) {
  float* state = h.state + uint64_t(first) * h.k_dim;
  for (uint64_t t = 0; t < h.tokens; ++t) {
    const float *query = h.q + t * h.qk_stride, *key = h.k + t * h.qk_stride;
    const float decay = h.g[t * h.gate_stride], rate = h.beta[t * h.gate_stride];
    F32 predicted[rows] = {};
    for (uint32_t i = 0; i < h.k_dim; i += kLanes) {
      const F32 own = load_floats(key + i);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r) {
        float* place = state + r * h.k_dim + i;
        const F32 s = load_floats(place) * decay;
        store_floats(place, s);
        predicted[r] = fused(s, own, predicted[r]);
      }
    }
    F32 delta[rows], out[rows] = {};
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; ++r)
      delta[r] = splat(rate * (h.v[t * h.v_stride + first + r] - sum(predicted[r])));
    for (uint32_t i = 0; i < h.k_dim; i += kLanes) {
      const F32 own = load_floats(key + i), asked = load_floats(query + i);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < rows; ++r) {
        float* place = state + r * h.k_dim + i;
        const F32 s = fused(delta[r], own, load_floats(place));
        store_floats(place, s);
        out[r] = fused(s, asked, out[r]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; ++r) h.y[t * h.y_stride + first + r] = sum(out[r]);
  }
}

}  // namespace

void conv1d(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_conv1d, launch); }

void decay_beta(const FastLaunch& launch) {
  const float *a = launch.buffer<float>(0), *b = launch.buffer<float>(1);
  float *g = launch.buffer<float>(4), *beta = launch.buffer<float>(5);
  const uint64_t heads = launch.value<uint32_t>(7), count = launch.value<uint32_t>(6) * heads;
  launch.batch.add(count, kGateTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t head = uint32_t(i % heads);
      const float rate = softplus(a[i] + value_at(launch, 3, head));
      g[i] = __builtin_expf(-__builtin_expf(value_at(launch, 2, head)) * rate);
      beta[i] = 1.0f / (1.0f + __builtin_expf(-b[i]));
    }
  });
}

void delta_net(const FastLaunch& launch) {
  const uint32_t k_dim = key_dim(launch), tokens = launch.value<uint32_t>(7);
  const uint64_t v_heads = launch.value<uint32_t>(9), blocks = launch.value<uint32_t>(10) / kRowBlock;
  const double each = double(tokens) * kRowBlock * k_dim * kStateTime;
  launch.batch.add(blocks * v_heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item)
      update_rows<kRowBlock>(delta_head(launch, k_dim, item / blocks), uint32_t(item % blocks) * kRowBlock);
  });
}

}  // namespace pyturbo::cpu::PYTURBO_ISA
