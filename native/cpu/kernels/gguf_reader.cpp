#include "cpu/kernels/gguf_reader.h"

#include "cpu/kernels/gguf_steps.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

template <typename T>
void read_groups(const uint8_t* blocks, uint32_t count, float* scales, float* biases) {
  if constexpr (T::kBlock > 32) {
    for (uint32_t b = 0; b < count; ++b) {
      alignas(F32) float entries[T::kScales + T::kMinima];
      T::entries(blocks + uint64_t(b) * T::kBlockBytes, reinterpret_cast<F32*>(entries));
      const float* minima = T::kMinima > 0 ? entries + T::kScales : entries;
      for (uint32_t g = 0; g < T::kScales; ++g) {
        scales[b * T::kScales + g] = entries[g];
        biases[b * T::kScales + g] = minima[g] * -kMinimumFactor<T>;
      }
    }
  } else {
    for (uint32_t b = 0; b < count; b += kLanes) {
      const ScaleAndBias own =
          scale_and_bias<T>(gather_words<T::kBlockBytes>(blocks + uint64_t(b) * T::kBlockBytes, count - b));
      store_floats(scales + b, own.scale);
      store_floats(biases + b, own.bias);
    }
  }
}

template <typename T>
void read(const uint8_t* blocks, uint32_t count, uint8_t* codes, float* scales, float* biases) {
  read_groups<T>(blocks, count, scales, biases);
  if (!codes) return;
  for (uint32_t s = 0; s < count / kStepBlocks<T>; ++s)
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kStepVectors<T>; ++i)
      store_vector(codes + s * kStep<T> + i * kBytes,
                   step_codes<T>(blocks + uint64_t(s) * kStepBlocks<T> * T::kBlockBytes, i));
  if (count % kStepBlocks<T> != 0)
    store_vector(codes + (count - 1) * T::kBlock,
                 last_codes<T>(blocks + uint64_t(count - 1) * T::kBlockBytes));
}

template <typename T>
constexpr Reader kReader = {T::kType, T::kBlock, T::kBlockBytes, T::kGroup, zero_of<T>(), read<T>};

}  // namespace

const Reader* gguf_reader(uint32_t type) {
  return GgufTypes::call(type, [](auto t) { return &kReader<decltype(t)>; });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
