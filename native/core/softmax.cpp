#include "core/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "pyturbo/error.h"

namespace pyturbo {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Each place in a block has a sum of its own: so the order of additions is fixed, whatever the vectors.
constexpr uint32_t kBlock = 1024;

[[gnu::always_inline]] inline void weigh_each(const float* values, uint32_t count, float top, float scale,
                                              float* __restrict weights, double* __restrict sums) {
  for (uint32_t i = 0; i < count; ++i) weights[i] = exponential((values[i] - top) * scale);
  for (uint32_t i = 0; i < count; ++i) sums[i] += weights[i];
}

#if defined(__x86_64__)
// Wider vectors, the same bits: AVX2 brings no fused multiplication.
[[gnu::target("avx2")]] void weigh_avx2(const float* values, uint32_t count, float top, float scale,
                                        float* weights, double* sums) {
  weigh_each(values, count, top, scale, weights, sums);
}

const auto weigh_block = __builtin_cpu_supports("avx2") ? weigh_avx2 : weigh_each;
#else
const auto weigh_block = weigh_each;
#endif

[[noreturn]] void refuse(const char* op, const float* logits, uint32_t count) {
  const float* bad = std::find_if(logits, logits + count, [](float x) { return !(x < kInfinity); });
  throw Error(ErrorKind::argument, std::string(op) + ": logits: expected finite values or -inf, got " +
                                       (std::isnan(*bad) ? "NaN" : "+inf") + " at " +
                                       std::to_string(bad - logits));
}

}  // namespace

double weigh(const float* values, uint32_t count, float top, float scale, float* weights) {
  alignas(64) float scratch[kBlock];
  alignas(64) double sums[kBlock] = {};
  for (uint32_t begin = 0; begin < count; begin += kBlock)
    weigh_block(values + begin, std::min(kBlock, count - begin), top, scale,
                weights ? weights + begin : scratch, sums);
  return std::accumulate(sums, sums + kBlock, 0.0);
}

double least_sum_from(const float* weights, uint32_t count, float least) {
  alignas(64) float sums[kBlock] = {};
  for (uint32_t begin = 0; begin < count; begin += kBlock) {
    const float* block = weights + begin;
    const uint32_t n = std::min(kBlock, count - begin);
    for (uint32_t i = 0; i < n; ++i) sums[i] += block[i] >= least ? block[i] : 0.0f;
  }
  // Each addition rounds by 2^-24 of its sum at most; twice that is on the safe side.
  const double rounding = 0x1p-23 * (count / kBlock + 1);
  return std::accumulate(sums, sums + kBlock, 0.0) * (1 - rounding);
}

BlockPeak peak_of(const float* logits, uint32_t count) {
  constexpr ptrdiff_t kLanes = 32;  // each with a maximum of its own, for the compiler to use vectors
  float peaks[kLanes];
  int32_t refused[kLanes] = {};
  std::fill(peaks, peaks + kLanes, -kInfinity);
  const auto look = [&](const float* x, uint32_t lanes) {
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      peaks[lane] = x[lane] > peaks[lane] ? x[lane] : peaks[lane];
      refused[lane] |= x[lane] < kInfinity ? 0 : 1;
    }
  };
  const float* const end = logits + count;
  for (; end - logits >= kLanes; logits += kLanes) look(logits, kLanes);
  look(logits, uint32_t(end - logits));
  return {*std::max_element(peaks, peaks + kLanes), std::accumulate(refused, refused + kLanes, 0) != 0};
}

Peak find_peak(const char* op, const float* logits, uint32_t count) {
  Peak peak{-kInfinity, 0};  // the position is that of the block until the end
  for (uint32_t begin = 0; begin < count; begin += kBlock) {
    const BlockPeak block = peak_of(logits + begin, std::min(kBlock, count - begin));
    if (block.refused) refuse(op, logits, count);
    if (block.value > peak.value) peak = {block.value, begin};
  }
  if (peak.value == -kInfinity)
    throw Error(ErrorKind::argument,
                std::string(op) + ": logits: expected at least one finite value, got -inf only");
  while (logits[peak.position] != peak.value) ++peak.position;
  return peak;
}

}  // namespace pyturbo
