#include "cpu/kernels/gguf_reader.h"

#include "cpu/kernels/gguf_steps.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

// The halves at byte `at` of kLanes blocks of 32 values, or of the `count` there are.
template <typename T>
F32 halves(const uint8_t* blocks, uint32_t count, uint32_t at) {
  uint16_t bits[kLanes] = {};
  for (uint32_t i = 0; i < least(count, kLanes); ++i)
    std::memcpy(bits + i, blocks + i * T::kBlockBytes + at, sizeof *bits);
  return from_half(load_vector<U16Half>(bits));
}

template <typename T>
F32 block_scales(const uint8_t* blocks, uint32_t count) {
  if constexpr (requires { T::kScale; }) {
    return halves<T>(blocks, count, T::kScale);
  } else {
    F32 scales = {};
    for (uint32_t i = 0; i < least(count, kLanes); ++i) scales[i] = T::scale(blocks + i * T::kBlockBytes);
    return scales;
  }
}

template <typename T>
void read_groups(const uint8_t* blocks, uint32_t count, float* scales, float* biases) {
  if constexpr (T::kBlock > 32) {
    constexpr uint32_t kGroups = T::kBlock / T::kGroup;
    for (uint32_t b = 0; b < count; ++b)
      T::groups(blocks + uint64_t(b) * T::kBlockBytes, scales + b * kGroups, biases + b * kGroups);
  } else {
    for (uint32_t b = 0; b < count; b += kLanes) {
      const uint8_t* from = blocks + uint64_t(b) * T::kBlockBytes;
      const F32 own = block_scales<T>(from, count - b);
      store_floats(scales + b, own);
      if constexpr (requires { T::kZero; })
        store_floats(biases + b, own * -float(T::kZero));
      else
        store_floats(biases + b, halves<T>(from, count - b, T::kBias));
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
constexpr int32_t zero_of() {
  if constexpr (requires { T::kZero; })
    return T::kZero;
  else
    return -1;
}

template <typename T>
constexpr Reader kReader = {T::kType, T::kBlock, T::kBlockBytes, T::kGroup, T::kBits, zero_of<T>(), read<T>};

}  // namespace

const Reader* gguf_reader(uint32_t type) {
  return GgufTypes::call(type, [](auto t) { return &kReader<decltype(t)>; });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
