// Tiles of a product, and the loops over them.
#pragma once

#include "cpu/kernels/quantized_product.h"
#include "cpu/kernels/quantized_tile.h"
#include "cpu/kernels/scratch.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Row `first` and those after it of a product with all its tokens.
static inline void tile_of(MultiplyTile multiply, const Product& p, const Activations& x, uint32_t first) {
  const uint64_t floats = in_lanes(p.tokens) * kTileRows;
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

// Fewest tokens for which floats are faster where a format has loops over both.
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr uint32_t kFloatTokens = ~0u;  // never
#elif defined(__ARM_NEON) && !defined(__ARM_FEATURE_DOTPROD)
constexpr uint32_t kFloatTokens = 8;
#else
constexpr uint32_t kFloatTokens = kFastIntegers ? 64 : 24;
#endif

// The loops of a format and a precision, over integers and over floats; one of them may be missing.
struct TileLoops {
  MultiplyTile integers, floats;

  bool use_integers(uint32_t tokens) const { return !floats || (integers && tokens < kFloatTokens); }
  MultiplyTile at(uint32_t tokens) const { return use_integers(tokens) ? integers : floats; }
};

#if defined(__ARM_NEON)
// The loops of blocks for each precision. Those over integers give every token the bits that it has alone.
const TileLoops* gguf_tiles(const Reader& reader);
#endif

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
