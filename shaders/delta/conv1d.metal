// Causal depthwise convolution of width 4 over the tokens, with SiLU, and the rows the next call needs.
#include "../common/activations.h"

constexpr constant uint kPast = 3;       // rows of the history
constexpr constant uint kChannels = 32;  // channels of one threadgroup, one per lane
constexpr constant uint kRuns = 4;       // stretches of tokens, one per simdgroup
constexpr constant uint kTokens = 128;   // of one threadgroup

// Row `token` of u: the history, then x. Row 0 is the first of x.
inline float input_row(
    device const float* x,
    device const float* history,
    uint channels,
    uint c,
    long token) {
  return token < 0 ? history[ulong(token + kPast) * channels + c] : x[ulong(token) * channels + c];
}

// y[t] = silu(sum_i weight[:, i] * u[t - 3 + i]) with u = history, then x; history becomes the last rows of u.
// Layout: rows contiguous, history updated in place; y overlaps neither x nor history.
// Dispatch: groups (ceil_div(channels, kChannels), ceil_div(tokens, kTokens)), threads (kChannels * kRuns)
// Requires: tokens > 0; channels > 0
// Numerics: f32 fma from the oldest row on; NaN and inf reach only their own channel. History is copied.
template <typename W>
kernel void conv1d(
    device const float* x [[buffer(0)]],   // [tokens, channels]
    device float* history [[buffer(1)]],   // [3, channels]
    device const W* weight [[buffer(2)]],  // [channels, 4]
    device float* y [[buffer(3)]],         // [tokens, channels]
    constant uint& tokens [[buffer(4)]],
    constant uint& channels [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint c = tg.x * kChannels + lane;
  const bool exists = c < channels;
  if (exists) {
    const ulong begin = ulong(tg.y) * kTokens;
    const ulong count = min(ulong(kTokens), tokens - begin);
    const ulong first = begin + count * simd / kRuns;
    const ulong end = begin + count * (simd + 1) / kRuns;
    device const W* w = weight + ulong(c) * 4;
    const float4 taps = float4(float(w[0]), float(w[1]), float(w[2]), float(w[3]));
    float4 u = 0.0f;
    if (first < end) {
      for (uint i = 0; i < kPast; ++i) u[i + 1] = input_row(x, history, channels, c, long(first) + i - kPast);
    }
    for (ulong t = first; t < end; ++t) {
      u = float4(u.yzw, x[t * channels + c]);
      const float sum = fma(taps.w, u.w, fma(taps.z, u.z, fma(taps.y, u.y, taps.x * u.x)));
      y[t * channels + c] = silu(sum);
    }
  }

  // The first threadgroup alone reads the history, and all of its runs have.
  threadgroup_barrier(mem_flags::mem_device);
  if (exists && tg.y == 0 && simd == 0) {
    float last[kPast];
    for (uint i = 0; i < kPast; ++i) last[i] = input_row(x, history, channels, c, long(tokens) + i - kPast);
    for (uint i = 0; i < kPast; ++i) history[ulong(i) * channels + c] = last[i];
  }
}

template [[host_name("conv1d_f32")]] kernel decltype(conv1d<float>) conv1d<float>;
template [[host_name("conv1d_f16")]] kernel decltype(conv1d<half>) conv1d<half>;
template [[host_name("conv1d_bf16")]] kernel decltype(conv1d<bfloat>) conv1d<bfloat>;
