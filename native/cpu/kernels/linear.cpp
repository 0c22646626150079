// Products with weights that are not quantised: shaders/linear states what each kernel computes.
#include "cpu/kernels/families.h"
#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_ISA {
namespace {

constexpr uint32_t kPartials = 16 / kLanes;  // vectors of partial sums, so that every level has at least 16
constexpr uint32_t kStep = kPartials * kLanes;
constexpr uint32_t kTokenBlock = 4;
constexpr uint32_t kRowBlock = 8;
constexpr double kByteTime = 0.1;  // nanoseconds to read a byte of weights

// y[t * out] = row . x[t] for a few tokens. The additions of one token do not depend on how many there are.
template <typename W, uint32_t tokens>
PYTURBO_INLINE void dot_row(const W* row, const float* x, uint32_t in, float* y, uint64_t out) {
  F32 acc[tokens][kPartials] = {};
  uint32_t i = 0;
  for (; i + kStep <= in; i += kStep) {
#pragma GCC unroll 4
    for (uint32_t part = 0; part < kPartials; ++part) {
      const F32 w = load_floats(row + i + part * kLanes);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < tokens; ++t)
        acc[t][part] = fused(w, load_floats(x + uint64_t(t) * in + i + part * kLanes), acc[t][part]);
    }
  }
  for (; i < in; i += kLanes) {
    const uint32_t count = least(kLanes, in - i);
    const F32 w = count == kLanes ? load_floats(row + i) : load_floats(row + i, count, count);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < tokens; ++t) {
      const float* from = x + uint64_t(t) * in + i;
      acc[t][0] = fused(w, count == kLanes ? load_floats(from) : load_floats(from, count, count), acc[t][0]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < tokens; ++t) {
    F32 total = acc[t][0];
#pragma GCC unroll 4
    for (uint32_t part = 1; part < kPartials; ++part) total += acc[t][part];
    y[t * out] = sum(total);
  }
}

// y[t, r] for the rows from `first` on.
template <typename W>
void dot_rows(const W* weight, const float* x, uint32_t tokens, uint32_t in, float* y, uint32_t out,
              uint32_t first, uint32_t rows) {
  for (uint32_t t = 0; t < tokens; t += kTokenBlock) {
    const float* from = x + uint64_t(t) * in;
    for (uint32_t r = first; r < first + rows; ++r) {
      const W* row = weight + uint64_t(r) * in;
      float* to = y + uint64_t(t) * out + r;
      switch (tokens - t) {
        case 1:
          dot_row<W, 1>(row, from, in, to, out);
          break;
        case 2:
          dot_row<W, 2>(row, from, in, to, out);
          break;
        case 3:
          dot_row<W, 3>(row, from, in, to, out);
          break;
        default:
          dot_row<W, kTokenBlock>(row, from, in, to, out);
      }
    }
  }
}

template <typename W>
void run_matmul(const FastLaunch& launch) {
  const uint32_t tokens = launch.value<uint32_t>(3), out = launch.value<uint32_t>(4),
                 in = launch.value<uint32_t>(5);
  const uint64_t blocks = (out + kRowBlock - 1) / kRowBlock;
  const double bytes = double(in) * sizeof(W) * kRowBlock * tokens;
  launch.batch.add(blocks, bytes * kByteTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t block = begin; block < end; ++block) {
      const uint32_t first = uint32_t(block) * kRowBlock;
      dot_rows(launch.buffer<W>(1), launch.buffer<float>(0), tokens, in, launch.buffer<float>(2), out, first,
               least(kRowBlock, out - first));
    }
  });
}

template <typename W>
void run_experts(const FastLaunch& launch) {
  const auto value = [&](uint32_t i) { return launch.value<uint32_t>(i); };
  const uint32_t tokens = value(4), k = value(5), x_rows = value(6), in = value(7), out = value(8),
                 experts = value(9);
  const uint64_t blocks = (out + kRowBlock - 1) / kRowBlock;
  const double bytes = double(in) * sizeof(W) * kRowBlock;
  launch.batch.add(uint64_t(tokens) * k * blocks, bytes * kByteTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const uint64_t choice = item / blocks;
      const uint32_t first = uint32_t(item % blocks) * kRowBlock;
      const uint32_t rows = least(kRowBlock, out - first);
      const uint32_t expert = uint32_t(launch.buffer<int32_t>(1)[choice]);  // a negative id is a large one
      float* y = launch.buffer<float>(3) + choice * out;
      if (expert >= experts) {
        for (uint32_t r = first; r < first + rows; ++r) y[r] = __builtin_nanf("");
        continue;
      }
      const float* x = launch.buffer<float>(0) + (choice / k * x_rows + choice % k % x_rows) * in;
      dot_rows(launch.buffer<W>(2) + uint64_t(expert) * out * in, x, 1, in, y, out, first, rows);
    }
  });
}

}  // namespace

void matmul(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_matmul, launch); }
void experts_matvec(const FastLaunch& launch) { PYTURBO_BY_TYPE(launch.format.type, run_experts, launch); }

}  // namespace pyturbo::cpu::PYTURBO_ISA
