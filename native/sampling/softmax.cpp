#include "sampling/softmax.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "pyturbo/error.h"

namespace pyturbo {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Each position in a block has its own sum, so the order of additions does not depend on the vector width.
constexpr uint32_t kBlock = 1024;

[[gnu::always_inline]] inline void weigh_each(const float* values, uint32_t count, float top, float scale,
                                              float* __restrict weights, double* __restrict sums) {
  for (uint32_t i = 0; i < count; ++i) weights[i] = exponential((values[i] - top) * scale);
  for (uint32_t i = 0; i < count; ++i) sums[i] += weights[i];
}

#if defined(__x86_64__)
// Wider vectors give the same bits: AVX2 has no fused multiply-add.
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

double weighted_sum(const float* values, const float* weights, uint32_t count, float top) {
  alignas(64) double sums[kBlock] = {};
  for (uint32_t begin = 0; begin < count; begin += kBlock) {
    const uint32_t n = std::min(kBlock, count - begin);
    for (uint32_t i = 0; i < n; ++i) sums[i] += weights[begin + i] * (double(values[begin + i]) - top);
  }
  return std::accumulate(sums, sums + kBlock, 0.0);
}

double deviation(const float* values, uint32_t count) {
  // The sum of of(value) over the values that are not -inf.
  const auto sum = [&](auto of) {
    alignas(64) double sums[kBlock] = {};
    for (uint32_t begin = 0; begin < count; begin += kBlock) {
      const uint32_t n = std::min(kBlock, count - begin);
      for (uint32_t i = 0; i < n; ++i) {
        const float value = values[begin + i];
        sums[i] += value > -kInfinity ? of(double(value)) : 0.0;
      }
    }
    return std::accumulate(sums, sums + kBlock, 0.0);
  };
  const double allowed = sum([](double) { return 1.0; });
  const double mean = sum([](double value) { return value; }) / allowed;
  return std::sqrt(sum([&](double value) { return (value - mean) * (value - mean); }) / allowed);
}

double least_sum_from(const float* weights, uint32_t count, float least) {
  alignas(64) float sums[kBlock] = {};
  for (uint32_t begin = 0; begin < count; begin += kBlock) {
    const float* block = weights + begin;
    const uint32_t n = std::min(kBlock, count - begin);
    for (uint32_t i = 0; i < n; ++i) sums[i] += block[i] >= least ? block[i] : 0.0f;
  }
  // Each addition rounds by at most 2^-24 of its sum; twice that is a safe bound.
  const double rounding = 0x1p-23 * (count / kBlock + 1);
  return std::accumulate(sums, sums + kBlock, 0.0) * (1 - rounding);
}

BlockPeak peak_of(const float* logits, uint32_t count) {
  constexpr ptrdiff_t kLanes = 32;  // each has its own maximum, so that the compiler can use vectors
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

namespace {

// Finds the peak block by block. block_at(begin, n) makes the n logits of a block readable and returns their
// address.
template <typename BlockAt>
Peak find_peak(const char* op, uint32_t count, BlockAt block_at) {
  Peak peak{-kInfinity, 0};  // until the end, the position is that of the block
  const float* logits = nullptr;
  for (uint32_t begin = 0; begin < count; begin += kBlock) {
    const uint32_t n = std::min(kBlock, count - begin);
    logits = block_at(begin, n);
    const BlockPeak block = peak_of(logits + begin, n);
    if (block.refused) refuse(op, logits, begin + n);
    if (block.value > peak.value) peak = {block.value, begin};
  }
  if (peak.value == -kInfinity)
    throw Error(ErrorKind::argument,
                std::string(op) + ": logits: expected at least one finite value, got -inf only");
  while (logits[peak.position] != peak.value) ++peak.position;
  return peak;
}

}  // namespace

Peak find_peak(const char* op, const float* logits, uint32_t count) {
  return find_peak(op, count, [&](uint32_t, uint32_t) { return logits; });
}

Peak copy_logits(const char* op, const float* shared, uint32_t count, float* copy) {
  return find_peak(op, count, [&](uint32_t begin, uint32_t n) {
    std::memcpy(copy + begin, shared + begin, n * sizeof(float));
    // From here on the compiler must read the copy: `shared` may have changed.
    asm volatile("" : : "r"(copy) : "memory");
    return copy;
  });
}

}  // namespace pyturbo
