// Tiles of a product, and which instance of the inner loops serves a format.
#pragma once

#include "cpu/kernels/gguf_steps.h"
#include "cpu/kernels/quantized_integer_tile.h"
#include "cpu/kernels/quantized_product.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Row `first` and those after it of a product with all its tokens.
static inline void tile_of(MultiplyTile multiply, const Product& p, const Activations& x, uint32_t first) {
  const uint64_t floats = uint64_t(p.tokens) * kTileRows;
  float* sums = static_cast<float*>(item_scratch(sizeof(float) * floats * (p.gated ? 2 : 1)));
  multiply(p.w, first, x, p.x, p.tokens, sums);
  if (p.gated) multiply(p.up, first, x, p.x, p.tokens, sums + floats);
  const uint32_t rows = least(kTileRows, p.w.out - first);
  for (uint32_t t = 0; t < p.tokens; ++t) {
    float* y = p.y + uint64_t(t) * p.w.out + first;
    const float* own = sums + uint64_t(t) * kTileRows;
    if (p.gated)
      gate(y, own, own + floats, rows);
    else
      std::memcpy(y, own, sizeof(float) * rows);
  }
}

// The loops of a format, for each precision.
struct TileLoops {
  MultiplyTile multiply[kPrecisions];
};

template <typename Q>
constexpr TileLoops kTileLoops = {{multiply_integer_tile<Q>, multiply_tile<Q>}};
template <>
constexpr TileLoops kTileLoops<E4m3Codes> = {{multiply_tile<E4m3Codes>, multiply_tile<E4m3Codes>}};
template <typename T>
constexpr TileLoops kGgufTileLoops = {
    {multiply_integer_tile<BlockCodes<T>, true>, multiply_tile<BlockCodes<T>, true>}};

static inline MultiplyTile loop_of(const Batch& batch, const Format& format) {
  const TileLoops* loops;
  if (format.reader)
    loops = GgufTypes::call(format.reader->type, [](auto type) { return &kGgufTileLoops<decltype(type)>; });
  else
    loops = by_codes(format, [](auto codes) { return &kTileLoops<decltype(codes)>; });
  return loops->multiply[precision_of(batch)];
}

// Activations as those loops read them, floats or integers: `rows` rows for matrices like w.
static inline Activations tile_activations(Batch& batch, const Format& format, const float* x, uint64_t rows,
                                           const Matrix& w) {
  if (batch.precision() == Precision::fast)
    return quantize(batch, format, x, rows, w.in, 1u << w.group_shift, 1);
  return {x, nullptr, nullptr, nullptr, 0, 0, false};
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
