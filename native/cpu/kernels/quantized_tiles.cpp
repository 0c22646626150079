// Products with many tokens, at levels without tiles of AMX.
#include "cpu/kernels/quantized_tiles.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {
namespace {

constexpr double kProductTime = 0.02;  // nanoseconds of one product of a weight and an activation in a tile

}  // namespace

void run_tiles(Batch& batch, const Products& products, const float* values, uint64_t rows) {
  const TileLoops loops = tile_loops_of(batch, products.format);
  const uint32_t tiles = (products.out + kTileRows - 1) / kTileRows;
  const Product sample = products.at(0);
  const Activations x = tile_activations(batch, loops, products, values, rows);
  const double each =
      double(rows) / double(products.count) * kTileRows * sample.w.in * (sample.gated ? 2 : 1);
  batch.add(products.count * tiles, each * kProductTime, [=](uint64_t begin, uint64_t end) {
    for (uint64_t item = begin; item < end; ++item) {
      const Product p = products.at(item / tiles);
      const uint32_t first = uint32_t(item % tiles) * kTileRows;
      if (!p.known)
        fill_nan(p, first, least(kTileRows, products.out - first));
      else if (p.tokens > 0)
        tile_of(loops.at(p.tokens), p, x, first);
    }
  });
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
