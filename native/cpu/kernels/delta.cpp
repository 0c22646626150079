// The delta net: shaders/delta specifies each kernel.
#include "arguments/delta/conv1d.h"
#include "arguments/delta/decay_beta.h"
#include "arguments/delta/delta_net.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/delta_head.h"
#include "cpu/kernels/exponential.h"
#include "cpu/kernels/row.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr uint32_t kPast = 3;           // rows of the history
constexpr uint32_t kChannels = 4 * 16;  // channels of an item
constexpr uint32_t kRowBlock = 4;       // state rows of an item
constexpr double kTapTime = 1.0;        // nanoseconds of one output of the convolution
constexpr double kStateTime = 0.15;     // nanoseconds of one value of the state and token
constexpr double kGateTime = 60;        // nanoseconds of the two gates of a head

// The channels [first, first + count) of all tokens, then of the history.
template <typename W>
void convolve(const arguments::conv1d<W>& a, uint32_t first, uint32_t count) {
  const uint64_t channels = a.channels;
  for_vectors(count, [&](uint32_t i, uint32_t part) {
    const uint64_t c = first + i;
    float taps[4][kLanes] = {};
    W four[4][kLanes] = {};
    for (uint32_t l = 0; l < part; ++l)
      for (uint32_t j = 0; j < 4; ++j) four[j][l] = a.weight[(c + l) * 4 + j];
    for (uint32_t j = 0; j < 4; ++j) store_floats(taps[j], load_floats(four[j]));
    F32 u[4] = {};
    for (uint32_t j = 0; j < kPast; ++j) u[j + 1] = load_some(a.history + j * channels + c, part);
    for (uint64_t t = 0; t < a.tokens; ++t) {
      u[0] = u[1];
      u[1] = u[2];
      u[2] = u[3];
      u[3] = load_some(a.x + t * channels + c, part);
      F32 sum = load_floats(taps[0]) * u[0];
#pragma GCC unroll 3
      for (uint32_t j = 1; j < 4; ++j) sum = fused(load_floats(taps[j]), u[j], sum);
      store_some(a.y + t * channels + c, silu(sum), part);
    }
    for (uint32_t j = 0; j < kPast; ++j) store_some(a.history + j * channels + c, u[j + 1], part);
  });
}

template <typename W>
void conv1d(Batch& batch, const arguments::conv1d<W>& a) {
  const uint64_t items = (a.channels + kChannels - 1) / kChannels;
  batch.add(items, double(a.tokens) * kChannels * kTapTime, [=](uint64_t begin, uint64_t end) {
    const uint32_t first = uint32_t(begin) * kChannels;
    convolve(a, first, uint32_t(least(end * kChannels, uint64_t(a.channels))) - first);
  });
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

template <typename A, typename D>
void decay_beta(Batch& batch, const arguments::decay_beta<A, D>& a) {
  batch.add(uint64_t(a.tokens) * a.heads, kGateTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t head = uint32_t(i % a.heads);
      const float rate = softplus(a.a[i] + load_float(a.dt_bias + head));
      a.g[i] = __builtin_expf(-__builtin_expf(load_float(a.a_log + head)) * rate);
      a.beta[i] = 1.0f / (1.0f + __builtin_expf(-a.b[i]));
    }
  });
}

void delta_net(Batch& batch, const arguments::delta_net& a) {
  static_assert(arguments::delta_net::kRows % kRowBlock == 0);  // so that blocks are whole
  const uint32_t k_dim = a.columns * kSimdWidth;                // columns of a lane
  const uint64_t blocks = a.v_dim / kRowBlock;
  const double each = double(a.tokens) * kRowBlock * k_dim * kStateTime;
  batch.add(blocks * a.v_heads, each, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item)
      update_rows<kRowBlock>(delta_head(a, k_dim, item / blocks), uint32_t(item % blocks) * kRowBlock);
  });
}

}  // namespace

PYTURBO_BODIES(delta, PYTURBO_BODY(conv1d), PYTURBO_BODY(decay_beta), PYTURBO_BODY(delta_net))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
