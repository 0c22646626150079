// Reads memory as fast as the processor can: shaders/bench/read_words.metal specifies the sum.
#include "arguments/bench/read_words.h"
#include "cpu/kernels/bodies.h"
#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

void read_words(Batch& batch, const arguments::read_words& a) {
  constexpr uint32_t kBlockBytes = arguments::read_words::kBlockWords * sizeof(uint32_t);
  constexpr uint32_t kAhead = 2048;    // bytes
  constexpr double kBlockTime = 6000;  // nanoseconds
  const uint8_t* words = reinterpret_cast<const uint8_t*>(a.words);
  batch.add(a.blocks, kBlockTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t block = begin; block < end; ++block) {
      const uint8_t* from = words + block * kBlockBytes;
      U32 total[4] = {};
      for (uint32_t i = 0; i < kBlockBytes; i += 4 * kBytes) {
        __builtin_prefetch(from + i + kAhead);
        if (4 * kBytes > 64) __builtin_prefetch(from + i + kAhead + 64);
        if (4 * kBytes > 128) {
          __builtin_prefetch(from + i + kAhead + 128);
          __builtin_prefetch(from + i + kAhead + 192);
        }
#pragma GCC unroll 4
        for (uint32_t part = 0; part < 4; ++part) total[part] += load_vector<U32>(from + i + part * kBytes);
      }
      a.sums[block] = uint32_t(sum((I32)(total[0] + total[1] + total[2] + total[3])));
    }
  });
}

}  // namespace

PYTURBO_BODIES(bench, PYTURBO_BODY(read_words))

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
